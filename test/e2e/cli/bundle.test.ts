// The bundle keeps the modules of different commands apart: each command loads only the packages that
// it needs.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Workplace } from './command-run.ts';

/** Appends the name of each package and module of Node that a process or thread resolves to a file. */
const RECORDER = `
  import { appendFileSync } from 'node:fs';
  import { registerHooks } from 'node:module';
  registerHooks({
    resolve(specifier, context, next) {
      const found = next(specifier, context);
      const name = /\\/node_modules\\/((?:@[^/]+\\/)?[^/]+)\\/(?!.*\\/node_modules\\/)/.exec(found.url)?.[1];
      const isOwn = found.url.includes('/dist/');
      appendFileSync(process.env.LOADED, (isOwn ? found.url : name ?? found.url) + '\\n');
      return found;
    },
  });
`;
/** Packages and modules that only a platform needs. */
const PLATFORM = ['fastify', 'zod', 'prom-client', 'node:sqlite'];

/** Of a supervisor, its worker process and the thread. The build joins chunks for them: without that, there are about 65. */
const MAX_CHUNKS = 45;

const workplace = new Workplace();

beforeAll(() => {
  workplace.write('recorder.mjs', RECORDER);
  workplace.write('broken.ts', 'throw new Error("not today");');
});

afterAll(() => workplace.close());

/** Runs the built command and returns its exit code and the names that its processes loaded. */
async function listLoaded(name: string, args: readonly string[]) {
  const file = workplace.write(`loaded-${name}`, '');
  const env = { NODE_OPTIONS: `--import ${workplace.path('recorder.mjs')}`, LOADED: file };
  const { code } = await workplace.run(args, { env });
  return { code, names: new Set(workplace.read(`loaded-${name}`).split('\n')) };
}

describe('the built command', () => {
  it('loads no package to print its version', async () => {
    const { code, names } = await listLoaded('version', ['--version']);
    expect(code).toBe(0);
    const packages = [...names].filter((name) => /^(?!node:|file:|$)/.test(name));
    expect(packages).toEqual([]);
  });

  it('loads for a worker few chunks, no package of the platform, and neither node:crypto nor node:zlib', async () => {
    const target = ['--url', 'http://127.0.0.1:1', '--endpoint', 'e', '--key', 'k'];
    const { code, names } = await listLoaded('worker', ['worker', 'broken.ts', ...target]);
    expect(code).toBe(5);
    // The supervisor, the worker process and its thread have run.
    expect(names).toContain('pino');
    expect(names).toContain('piscina');
    expect([...names].some((name) => name.endsWith('/thread-entry.js'))).toBe(true);
    expect(names).toContain('node:child_process');
    expect([...PLATFORM, 'node:crypto', 'node:zlib'].filter((name) => names.has(name))).toEqual([]);
    const chunks = [...names].filter((name) => name.includes('/dist/chunks/'));
    expect(chunks.length).toBeLessThan(MAX_CHUNKS);
  });

  it('takes all compiled code of a worker from the cache that the start before has left', async () => {
    workplace.write('ready.ts', 'export default () => 1;');
    const target = ['--url', 'http://127.0.0.1:1', '--endpoint', 'e', '--key', 'k'];
    const env = { NODE_DEBUG_NATIVE: 'COMPILE_CACHE', NODE_COMPILE_CACHE: workplace.path('cache') };
    const start = async () => {
      const run = workplace.start(['worker', 'ready.ts', ...target], { env });
      // The worker process is then complete: it has loaded the handler and calls the platform.
      await run.until('stderr', /the platform is unavailable/);
      await run.end('SIGTERM');
      return run.stderr;
    };
    expect(await start()).toMatch(/chunks\/supervisor.* was not initialized/);
    const second = await start();
    expect(second).toMatch(/chunks\/supervisor.* was accepted/);
    expect(second.match(/.* was rejected.*/g)).toBeNull();
  });
});
