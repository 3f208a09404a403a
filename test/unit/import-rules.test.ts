// Import rules: which imports the linter accepts, and which it refuses.
// The test writes probe files with one import each beside a copy of biome.json and lints them in one run.
import { execFile } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';

const root = resolve(import.meta.dirname, '../..');

const platformParts = ['queue', 'control', 'cluster', 'store', 'wire', 'base'];

const workerFiles = [
  'worker/gpu/nvidia-smi.ts',
  'worker/gpu/nvidia-smi-report.ts',
  'worker/outbox/outbox-entries.ts',
];

/** The modules, or single files of them, that each module may import; ARCHITECTURE.md lists the same. */
const mayImport: Record<string, readonly string[]> = {
  base: [],
  wire: [],
  handler: ['wire', 'base'],
  process: ['handler', 'wire', 'base'],
  storage: ['handler', 'wire', 'base'],
  store: ['wire', 'base'],
  cluster: ['store', 'wire', 'base'],
  archive: ['wire', 'base'],
  transport: ['wire', 'base'],
  client: ['wire', 'base'],
  engine: ['wire', 'base'],
  queue: ['store/store.ts', 'wire', 'base'],
  worker: ['handler', 'wire', 'base'],
  control: ['store/store.ts', 'engine/engine.ts', 'archive', 'wire', 'base'],
  api: ['queue', 'control', 'wire', 'base'],
  harness: ['queue', 'store', 'worker', 'handler', 'wire', 'base'],
  conformance: ['platform', 'transport', 'client', 'client.ts', 'wire', 'base'],
  platform: ['api', ...platformParts, 'engine', ...workerFiles],
  cli: [
    ...['api', 'platform', 'store/disk', 'worker', 'transport'],
    ...['client', 'client.ts', 'conformance', 'archive', 'wire', 'base'],
  ],
};
const modules = Object.keys(mayImport);

const entryPoints = [
  'index.ts',
  'testing.ts',
  'client.ts',
  'outgoing.ts',
  'process.ts',
  'storage.ts',
  'server.ts',
];
const seams = ['store/store.ts', 'engine/engine.ts', 'store/disk/some-file.ts', ...workerFiles];
const targets = [...modules.map((module) => `${module}/some-file.ts`), ...entryPoints, ...seams];

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

function listForeign(module: string): string[] {
  return targets.filter((target) => !target.startsWith(`${module}/`));
}

function listProbes(): Probe[] {
  const rules = modules.flatMap((module) => [
    ...listForeign(module).flatMap((target) => [
      probeImport(`src/${module}`, `../${target}`),
      probeImport(`src/${module}/part`, `../../${target}`),
    ]),
    ...['millrace', './neighbour.ts', 'node:path'].map((specifier) =>
      probeImport(`src/${module}`, specifier),
    ),
    probeImport(`src/${module}/part`, '../neighbour.ts'),
  ]);
  const authors = ['handlers', 'examples/hello'].flatMap((folder) => [
    ...['../src/index.ts', '../../src/queue/queue.ts', '../dist/index.js'].map((specifier) =>
      probeImport(folder, specifier),
    ),
    ...['millrace', 'millrace/testing', 'sharp', './neighbour.ts'].map((specifier) =>
      probeImport(folder, specifier),
    ),
  ]);
  return [
    ...rules,
    ...authors,
    ...['zod', 'pino', 'fastify/lib/x.js'].map((name) => probeImport('src/wire', name)),
    probeImport('src/unlisted', '../base/clock.ts'),
    probeImport('src/unlisted/part', '../../base/clock.ts'),
    probeImport('src/worker/gpu/deeper', '../../../base/clock.ts'),
    ...Object.entries(formsOfImport).map(([form, source]) => ({
      path: nameProbe('src/worker', form),
      source,
    })),
    {
      path: 'src/base/first.ts',
      source: "import { second } from './second.ts';\nexport const first = second;\n",
    },
    {
      path: 'src/base/second.ts',
      source: "import { first } from './first.ts';\nexport const second = first;\n",
    },
    { path: 'src/cli/settings.ts', source: "export const port = process.env['PORT'];\n" },
    { path: 'src/cli/config.ts', source: "export const port = process.env['PORT'];\n" },
    { path: 'src/queue/printing.ts', source: "export const say = () => console.log('x');\n" },
    { path: 'src/cli/printing.ts', source: "export const say = () => console.log('x');\n" },
    { path: 'src/wire/link.ts', source: 'export interface Link {\n  take(): Promise<void>;\n}\n' },
    {
      path: 'src/worker/floating-promise.ts',
      source:
        "import type { Link } from '../wire/link.ts';\n" +
        'export function take(link: Link): void {\n  link.take();\n}\n',
    },
  ];
}

/** Lints the probes as if they stood in this repository. */
async function lintProbes(probes: readonly Probe[]): Promise<Finding[]> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-import-rules-'));
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

function wasRestricted(folder: string, specifier: string): boolean {
  return wasRefused(nameProbe(folder, specifier), 'noRestrictedImports');
}

beforeAll(async () => {
  findings.push(...(await lintProbes(listProbes())));
}, 30_000);

describe('import rules of src', () => {
  it('list every module', async () => {
    const entries = await readdir(join(root, 'src'), { withFileTypes: true });
    const folders = entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
    expect(folders.toSorted()).toEqual(modules.toSorted());
  });

  describe.each([
    ['', '../'],
    ['/part', '../../'],
  ])('src/<module>%s', (folder, up) => {
    it.each(Object.entries(mayImport))('%s/ imports only %j', (module, allowed) => {
      const foreign = listForeign(module);
      const accepted = foreign.filter(
        (target) => !wasRestricted(`src/${module}${folder}`, `${up}${target}`),
      );
      const expected = foreign.filter((target) =>
        allowed.some((name) => target === name || target.startsWith(`${name}/`)),
      );
      expect(accepted).toEqual(expected);
    });
  });

  it.each(modules)('%s/ cannot import itself by the package name', (module) => {
    expect(wasRestricted(`src/${module}`, 'millrace')).toBe(true);
  });

  it.each(modules)('%s/ may import its own files and modules of Node', (module) => {
    expect(wasRestricted(`src/${module}`, './neighbour.ts')).toBe(false);
    expect(wasRestricted(`src/${module}`, 'node:path')).toBe(false);
    expect(wasRestricted(`src/${module}/part`, '../neighbour.ts')).toBe(false);
  });

  it('a module without rules may import nothing', () => {
    expect(wasRestricted('src/unlisted', '../base/clock.ts')).toBe(true);
    expect(wasRestricted('src/unlisted/part', '../../base/clock.ts')).toBe(true);
  });

  it('a folder deeper than the rules may import nothing', () => {
    expect(wasRestricted('src/worker/gpu/deeper', '../../../base/clock.ts')).toBe(true);
  });

  it('wire/ uses no package but zod', () => {
    expect(wasRestricted('src/wire', 'zod')).toBe(false);
    expect(wasRestricted('src/wire', 'pino')).toBe(true);
    expect(wasRestricted('src/wire', 'fastify/lib/x.js')).toBe(true);
  });

  it.each(Object.keys(formsOfImport))('apply to imports of the form "%s"', (form) => {
    expect(wasRefused(nameProbe('src/worker', form), 'noRestrictedImports')).toBe(true);
  });

  it('refuse an import cycle', () => {
    expect(wasRefused('src/base/first.ts', 'noImportCycles')).toBe(true);
    expect(wasRefused('src/base/second.ts', 'noImportCycles')).toBe(true);
  });
});

describe('handlers and examples', () => {
  it.each(['handlers', 'examples/hello'])('%s/ cannot import the sources', (folder) => {
    for (const specifier of ['../src/index.ts', '../../src/queue/queue.ts', '../dist/index.js']) {
      expect(wasRestricted(folder, specifier), specifier).toBe(true);
    }
  });

  it.each(['handlers', 'examples/hello'])('%s/ may import the package by its name', (folder) => {
    for (const specifier of ['millrace', 'millrace/testing', 'sharp', './neighbour.ts']) {
      expect(wasRestricted(folder, specifier), specifier).toBe(false);
    }
  });
});

describe('rules with one exception', () => {
  it('only cli/config.ts reads the environment', () => {
    expect(wasRefused('src/cli/settings.ts', 'noProcessEnv')).toBe(true);
    expect(wasRefused('src/cli/config.ts', 'noProcessEnv')).toBe(false);
  });

  it('only cli/ writes to the console', () => {
    expect(wasRefused('src/queue/printing.ts', 'noConsole')).toBe(true);
    expect(wasRefused('src/cli/printing.ts', 'noConsole')).toBe(false);
  });
});

it('a promise that nothing awaits is refused, also behind an interface of another module', () => {
  expect(wasRefused('src/worker/floating-promise.ts', 'noFloatingPromises')).toBe(true);
});
