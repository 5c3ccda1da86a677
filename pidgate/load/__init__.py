"""`pidgate load`: synthetic producers, good and bad ones, that send at their own times and measure what comes back."""
