"""Problems, schedules, plans and the backends that run them: everything that a rank needs."""
