// Builds this program with further migrations of Postgres, as a later version would have them, into a folder of its own.
import { execFile } from 'node:child_process';
import { cp, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const ROOT = resolve(import.meta.dirname, '../../..');

export interface LaterStep {
  sql: string;
  /** Whether programs of the version before may use the database after it. */
  isCompatible: boolean;
}

export interface LaterBuild {
  /** Its `bin/millrace.js`. */
  bin: string;
  remove(): Promise<void>;
}

export async function buildWithSteps(steps: readonly LaterStep[]): Promise<LaterBuild> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-later-'));
  const plugin = join(folder, 'add-steps.mjs');
  await writeFile(plugin, describePlugin(steps));
  const place = { cwd: ROOT };
  await run(process.execPath, ['scripts/bundle.js', join(folder, 'dist'), plugin], place);
  for (const path of ['package.json', 'bin', 'dist/wire/link/worker.proto']) {
    await cp(join(ROOT, path), join(folder, path), { recursive: true });
  }
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  return {
    bin: join(folder, 'bin/millrace.js'),
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

/** Appends the steps to the sources before they are bundled. */
function describePlugin(steps: readonly LaterStep[]): string {
  const appended = steps.map(({ isCompatible, sql }) => {
    const oldest = isCompatible ? 'MIGRATIONS.length' : 'MIGRATIONS.length + 1';
    return `\nMIGRATIONS.push({ sql: ${JSON.stringify(sql)}, oldest: ${oldest} });`;
  });
  return `export default {
    name: 'add-steps',
    transform(code, id) {
      if (!id.endsWith('src/store/postgres/schema.ts')) return null;
      return code + ${JSON.stringify(appended.join(''))};
    },
  };`;
}
