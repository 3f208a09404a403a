// Builds the console: `vite build console` writes static files for `/console/` into dist.new/console.
// `npx vite console` serves the sources while you work on them, with the API of a platform on port 8000.
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';

const platform = 'http://127.0.0.1:8000';

export default defineConfig({
  base: '/console/',
  build: {
    outDir: fileURLToPath(new URL('../dist.new/console', import.meta.url)),
    emptyOutDir: true,
    target: 'es2023',
    // The policy of the pages allows no `data:` URL in a style, and a font or an image of this size is none of ours.
    assetsInlineLimit: 0,
    // All browsers of the target have it.
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  logLevel: 'warn',
  server: {
    proxy: { '/v1': platform, '/v2': platform, '/healthz': platform, '/readyz': platform },
  },
});
