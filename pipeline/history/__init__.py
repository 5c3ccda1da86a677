"""A history that never was: thirty days of a made-up fleet, told as gateways tell it, with the truth beside it."""
