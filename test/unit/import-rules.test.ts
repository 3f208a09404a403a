// The walls between the folders: which imports the linter lets through, and which it refuses.
// Probe files, one import each, are written beside a copy of biome.json and linted in one go.
import { execFile } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';

const root = resolve(import.meta.dirname, '../..');

/** For each walled room the rooms it may import, or single files of them. */
const mayImport: Record<string, readonly string[]> = {
  base: [],
  wire: [],
  handler: ['wire', 'base'],
  store: ['wire', 'base'],
  transport: ['wire', 'base'],
  client: ['wire', 'base'],
  engine: ['wire', 'base'],
  queue: ['store/store.ts', 'wire', 'base'],
  worker: ['handler', 'wire', 'base'],
  control: ['store/store.ts', 'engine/engine.ts', 'wire', 'base'],
  api: ['queue', 'control', 'wire', 'base'],
};
const freeRooms = ['harness', 'conformance', 'cli'];
const rooms = [...Object.keys(mayImport), ...freeRooms];

const doors = ['index.ts', 'testing.ts', 'client.ts', 'outgoing.ts'];
const targets = [...rooms.map((room) => `${room}/some-file.ts`), ...doors];
const seams = ['store/store.ts', 'engine/engine.ts'];

type Probe = { path: string; source: string };
type Finding = { path: string; rule: string };

const findings: Finding[] = [];

const reportSchema = z.object({
  diagnostics: z.array(
    z.object({ category: z.string(), location: z.object({ path: z.string() }) }),
  ),
});

function nameProbe(folder: string, label: string): string {
  return `${folder}/probe-${label.replaceAll(/[^a-z]+/g, '-')}.ts`;
}

function probeImport(folder: string, specifier: string): Probe {
  return { path: nameProbe(folder, specifier), source: `import '${specifier}';\n` };
}

const formsOfImport: Record<string, string> = {
  type: "import type { Queue } from '../queue/queue.ts';\nexport type Q = Queue;\n",
  named: "import { queue } from '../queue/queue.ts';\nexport const q = queue;\n",
  dynamic: "export const load = () => import('../queue/queue.ts');\n",
  reexport: "export { queue } from '../queue/queue.ts';\n",
};

function listProbes(): Probe[] {
  const walls = Object.keys(mayImport).flatMap((room) => [
    ...[...targets, ...seams]
      .filter((target) => !target.startsWith(`${room}/`))
      .map((target) => probeImport(`src/${room}`, `../${target}`)),
    probeImport(`src/${room}`, 'millrace'),
    probeImport(`src/${room}`, './neighbour.ts'),
    probeImport(`src/${room}`, 'node:path'),
  ]);
  const free = freeRooms.flatMap((room) =>
    targets.map((target) => probeImport(`src/${room}`, `../${target}`)),
  );
  const authors = ['handlers', 'examples/hello'].flatMap((folder) => [
    ...['../src/index.ts', '../../src/queue/queue.ts', '../dist/index.js'].map((specifier) =>
      probeImport(folder, specifier),
    ),
    ...['millrace', 'millrace/testing', 'sharp', './neighbour.ts'].map((specifier) =>
      probeImport(folder, specifier),
    ),
  ]);
  return [
    ...walls,
    ...free,
    ...authors,
    ...['zod', 'pino', 'fastify/lib/x.js'].map((name) => probeImport('src/wire', name)),
    probeImport('src/worker/gpu', '../outbox.ts'),
    probeImport('src/worker/gpu', '../../base/clock.ts'),
    probeImport('src/worker/gpu', '../../queue/queue.ts'),
    ...Object.entries(formsOfImport).map(([form, source]) => ({
      path: nameProbe('src/worker', form),
      source,
    })),
    {
      path: 'src/base/hen.ts',
      source: "import { egg } from './egg.ts';\nexport const hen = egg;\n",
    },
    {
      path: 'src/base/egg.ts',
      source: "import { hen } from './hen.ts';\nexport const egg = hen;\n",
    },
    { path: 'src/cli/settings.ts', source: "export const port = process.env['PORT'];\n" },
    { path: 'src/cli/config.ts', source: "export const port = process.env['PORT'];\n" },
    { path: 'src/queue/speaking.ts', source: "export const say = () => console.log('x');\n" },
    { path: 'src/cli/speaking.ts', source: "export const say = () => console.log('x');\n" },
    { path: 'src/wire/link.ts', source: 'export interface Link {\n  take(): Promise<void>;\n}\n' },
    {
      path: 'src/worker/forgetful.ts',
      source:
        "import type { Link } from '../wire/link.ts';\n" +
        'export function take(link: Link): void {\n  link.take();\n}\n',
    },
  ];
}

/** Lints the probes as if they stood in this repository. */
async function lintProbes(probes: readonly Probe[]): Promise<Finding[]> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-walls-'));
  try {
    await copyFile(join(root, 'biome.json'), join(folder, 'biome.json'));
    for (const probe of probes) {
      const path = join(folder, probe.path);
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, probe.source);
    }
    const report = reportSchema.parse(JSON.parse(await runBiome(folder)));
    return report.diagnostics.map(({ category, location }) => ({
      path: location.path,
      rule: category.split('/').at(-1) ?? category,
    }));
  } finally {
    await rm(folder, { recursive: true });
  }
}

function runBiome(folder: string): Promise<string> {
  const biome = createRequire(import.meta.url).resolve('@biomejs/biome/bin/biome');
  // The copy is no git checkout; everything else in the configuration holds as it stands.
  const options = ['lint', '--vcs-enabled=false', '--reporter=json', '--max-diagnostics=none'];
  return new Promise((done, fail) => {
    execFile(
      process.execPath,
      [biome, ...options, '.'],
      { cwd: folder, maxBuffer: 64 * 1024 * 1024 },
      // Findings make Biome exit 1 as they should; without a report on stdout it did not lint.
      (error, stdout, stderr) => (stdout === '' ? fail(error ?? new Error(stderr)) : done(stdout)),
    );
  });
}

function wasRefused(path: string, rule: string): boolean {
  return findings.some((finding) => finding.path === path && finding.rule === rule);
}

function wasWalled(folder: string, specifier: string): boolean {
  return wasRefused(nameProbe(folder, specifier), 'noRestrictedImports');
}

beforeAll(async () => {
  findings.push(...(await lintProbes(listProbes())));
}, 30_000);

describe('the walls between the folders of src', () => {
  it('are drawn for every folder there is', async () => {
    const entries = await readdir(join(root, 'src'), { withFileTypes: true });
    const folders = entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
    expect(folders.filter((folder) => !rooms.includes(folder))).toEqual([]);
  });

  it.each(Object.entries(mayImport))('%s/ imports only %j', (room, allowed) => {
    const candidates = [...targets, ...seams].filter((target) => !target.startsWith(`${room}/`));
    const letThrough = candidates.filter((target) => !wasWalled(`src/${room}`, `../${target}`));
    const expected = candidates.filter((target) =>
      allowed.some((name) => target === name || target.startsWith(`${name}/`)),
    );
    expect(letThrough).toEqual(expected);
  });

  it.each(Object.keys(mayImport))('%s/ cannot go round them by the package name', (room) => {
    expect(wasWalled(`src/${room}`, 'millrace')).toBe(true);
  });

  it.each(Object.keys(mayImport))('%s/ may import its own files and what Node brings', (room) => {
    expect(wasWalled(`src/${room}`, './neighbour.ts')).toBe(false);
    expect(wasWalled(`src/${room}`, 'node:path')).toBe(false);
  });

  it.each(freeRooms)('%s/ may import everything', (room) => {
    expect(targets.filter((target) => wasWalled(`src/${room}`, `../${target}`))).toEqual([]);
  });

  it('wire/ uses no package but zod', () => {
    expect(wasWalled('src/wire', 'zod')).toBe(false);
    expect(wasWalled('src/wire', 'pino')).toBe(true);
    expect(wasWalled('src/wire', 'fastify/lib/x.js')).toBe(true);
  });

  it('hold in a folder within a room', () => {
    expect(wasWalled('src/worker/gpu', '../outbox.ts')).toBe(false);
    expect(wasWalled('src/worker/gpu', '../../base/clock.ts')).toBe(false);
    expect(wasWalled('src/worker/gpu', '../../queue/queue.ts')).toBe(true);
  });

  it.each(Object.keys(formsOfImport))('hold for an import of the form "%s"', (form) => {
    expect(wasRefused(nameProbe('src/worker', form), 'noRestrictedImports')).toBe(true);
  });

  it('leave no import cycle', () => {
    expect(wasRefused('src/base/hen.ts', 'noImportCycles')).toBe(true);
    expect(wasRefused('src/base/egg.ts', 'noImportCycles')).toBe(true);
  });
});

describe('handlers and examples', () => {
  it.each(['handlers', 'examples/hello'])('%s/ cannot reach into the sources', (folder) => {
    for (const specifier of ['../src/index.ts', '../../src/queue/queue.ts', '../dist/index.js']) {
      expect(wasWalled(folder, specifier), specifier).toBe(true);
    }
  });

  it.each(['handlers', 'examples/hello'])('%s/ may import the package by its name', (folder) => {
    for (const specifier of ['millrace', 'millrace/testing', 'sharp', './neighbour.ts']) {
      expect(wasWalled(folder, specifier), specifier).toBe(false);
    }
  });
});

describe('what only one place may do', () => {
  it('reads the environment in cli/config.ts alone', () => {
    expect(wasRefused('src/cli/settings.ts', 'noProcessEnv')).toBe(true);
    expect(wasRefused('src/cli/config.ts', 'noProcessEnv')).toBe(false);
  });

  it('writes to the console in cli/ alone', () => {
    expect(wasRefused('src/queue/speaking.ts', 'noConsole')).toBe(true);
    expect(wasRefused('src/cli/speaking.ts', 'noConsole')).toBe(false);
  });
});

it('refuses a promise that nobody waits for, also one behind an interface of another room', () => {
  expect(wasRefused('src/worker/forgetful.ts', 'noFloatingPromises')).toBe(true);
});
