"""Events about connections: made, sampled and numbered here, published by gateway.state."""
