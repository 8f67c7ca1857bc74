"""Training: sample, judge, apportion, update. The loop is blind to the recipe."""
