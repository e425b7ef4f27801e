"""HTTP: the server and its socket, access control, form fields, and pages as HTML or JSON."""
