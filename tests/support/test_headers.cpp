// Compiled so that the precompiled headers of the tests exist.
