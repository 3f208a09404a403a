// Clients that public generators make from the OpenAPI document, with their default options: they
// compile under `strict` and work against a real platform.
import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createOpenApi } from '../../src/api/openapi/openapi.ts';
import { PlatformProcess } from '../support/processes.ts';

const root = resolve(import.meta.dirname, '../..');
const generators = join(root, 'test/generators');
const { resolve: find } = createRequire(join(generators, 'package.json'));
const execute = promisify(execFile);

const clients = [
  {
    generator: 'openapi-typescript',
    program: join(find('openapi-typescript/package.json'), '../bin/cli.js'),
    args: ['openapi.json', '--output', 'schema.ts'],
    consumer: 'openapi-fetch-consumer',
  },
  {
    generator: '@hey-api/openapi-ts',
    program: join(find('@hey-api/openapi-ts/package.json'), '../bin/run.js'),
    args: ['--input', './openapi.json', '--output', './generated'],
    consumer: 'hey-api-consumer',
  },
];

const tsconfig = {
  compilerOptions: {
    ...{ strict: true, module: 'nodenext', target: 'es2024', lib: ['es2024', 'dom'] },
    ...{ types: ['node'], outDir: 'built', rootDir: '.', skipLibCheck: true },
  },
  include: ['*.ts', 'generated'],
};

let folder: string;
let platform: PlatformProcess;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-generated-'));
  platform = await PlatformProcess.start({ endpoints: ['work'], args: ['--engine', 'process'] });
  platform.startWorker('work', 'tagged.ts', '--unsupervised');
});

afterAll(async () => {
  await platform.close();
  rmSync(folder, { recursive: true, force: true });
});

/** What it printed; rejects with it when it fails. */
async function runNode(cwd: string, args: string[], env: Record<string, string> = {}) {
  const options = { cwd, env: { ...process.env, ...env } };
  const { stdout } = await execute(process.execPath, args, options).catch((error) => {
    throw new Error(`${args.join(' ')}: ${error.stdout}\n${error.stderr}`);
  });
  return stdout;
}

describe.each(clients)('a client made by $generator', ({ args, consumer, generator, program }) => {
  it('compiles under `strict`, and submits jobs, reads their status and makes and lists resources', async () => {
    const place = join(folder, consumer);
    mkdirSync(place);
    symlinkSync(join(root, 'node_modules'), join(place, 'node_modules'));
    const write = (name: string, value: unknown) =>
      writeFileSync(join(place, name), JSON.stringify(value));
    write('openapi.json', createOpenApi('0.0.0'));
    write('tsconfig.json', tsconfig);
    write('package.json', { type: 'commonjs' });
    cpSync(join(generators, `${consumer}.ts`), join(place, `${consumer}.ts`));
    await runNode(place, [program, ...args]);
    await runNode(place, [join(root, 'node_modules/typescript/bin/tsc'), '-p', '.']);
    const env = { API_URL: platform.url, API_KEY: platform.adminKey };
    const printed = await runNode(place, [`built/${consumer}.js`], env);
    expect(JSON.parse(printed), generator).toEqual({
      ...{ ran: 'COMPLETED', isFound: true, disk: 20, isListed: true, hasNextPage: true },
      missing: 'not_found',
    });
  });
});
