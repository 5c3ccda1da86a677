"""TLS: certificates and keys as they are in files, and the one place that makes SSL contexts of them."""
