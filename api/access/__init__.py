"""Who may use the REST interface and the page: keys, roles, sessions, rates, and a record of what was refused."""
