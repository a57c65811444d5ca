"""PyTest's plug-in of Vellum: :mod:`pytest_vellum.plugin` has the fixtures, :mod:`vellum_db` the server."""
