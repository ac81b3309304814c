"""Loss over offered load, and how losses lie in the stream."""
