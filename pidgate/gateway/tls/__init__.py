"""TLS: certificates and keys from files, and the creation of SSL contexts."""
