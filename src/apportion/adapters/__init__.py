"""The same credit inside other frameworks: one module a host, which loads only where that host is installed."""
