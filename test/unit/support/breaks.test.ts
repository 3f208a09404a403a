// The soak breaks promises in the sources. A change of the sources must not make that impossible unnoticed.
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { NODE_BREAKS, QUEUE_BREAKS } from '../../soak/breaks.ts';

const ROOT = new URL('../../../', import.meta.url);

it.each([...QUEUE_BREAKS, ...NODE_BREAKS])(
  'lets the soak break: $promise',
  async ({ file, from }) => {
    const source = await readFile(fileURLToPath(new URL(file, ROOT)), 'utf8');
    expect(source.split(from), `${file} must have this text once`).toHaveLength(2);
  },
);
