"""Building the bundled models: the recipe, its plan, what it costs, and the cards."""
