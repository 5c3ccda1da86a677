"""Events about what connections do: made, sampled and numbered; published by gateway.state."""
