"""Which entry goes when there is no room, and which response is taken in: for the shadow and for what runs live."""
