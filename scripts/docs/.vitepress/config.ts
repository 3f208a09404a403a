// Settings of VitePress for the documentation site. `scripts/docs/docs.ts` writes the pages and starts the build.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig } from 'vitepress';
import { z } from 'zod';
import { toAnchor } from '../pages.ts';

const work = z.string().parse(process.env['DOCS_WORK']);
const outline = z
  .object({
    base: z.string(),
    version: z.string(),
    versions: z.array(z.string()),
    sections: z.array(
      z.object({
        text: z.string(),
        collapsed: z.boolean(),
        items: z.array(z.object({ text: z.string(), link: z.string() })),
      }),
    ),
  })
  .parse(JSON.parse(readFileSync(join(work, 'outline.json'), 'utf8')));

// biome-ignore lint/style/noDefaultExport: VitePress imports it.
export default defineConfig({
  title: 'Millrace',
  base: outline.base,
  description: 'A queue platform and serverless worker runtime for GPU jobs.',
  srcDir: join(work, 'pages'),
  cacheDir: join(work, 'cache'),
  head: [['link', { rel: 'icon', href: `${outline.base}icon.svg` }]],
  markdown: { anchor: { slugify: toAnchor } },
  themeConfig: {
    outline: [2, 3],
    search: { provider: 'local' },
    sidebar: outline.sections,
    nav: [
      { text: 'Tutorial', link: '/guides/tutorial' },
      { text: 'HTTP API', link: '/api/' },
      {
        text: outline.version,
        items: [
          { text: 'Changelog', link: '/changelog' },
          ...outline.versions.map((version) => ({
            text: version,
            link: `/${version}/`,
            target: '_self',
          })),
        ],
      },
    ],
  },
});
