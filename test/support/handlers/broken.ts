// Cannot be loaded.
throw new Error('this handler is broken');
