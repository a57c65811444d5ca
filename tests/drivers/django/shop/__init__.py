"""An application with models of every kind."""
