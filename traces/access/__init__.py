"""The access log of the live cache: what was asked for, when, and how it was answered; a trace of its traffic."""
