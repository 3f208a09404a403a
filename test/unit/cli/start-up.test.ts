// A start loads what it needs and no more: each of these packages costs 50 to 300 ms of processor time.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';

const run = promisify(execFile);

/** Prints the package of each module that is loaded with `module`, and `facade` for an import of node:http. */
const SCRIPT = `
import { registerHooks } from 'node:module';
const loaded = new Set();
registerHooks({
  resolve(specifier, context, next) {
    const isImport = context.conditions.includes('import');
    if (isImport && /^(node:)?http$/.test(specifier)) loaded.add('import of node:http');
    return next(specifier, context);
  },
  load(url, context, next) {
    const [, name] = /.*\\/node_modules\\/((?:@[^/]+\\/)?[^/]+)/.exec(url) ?? [];
    if (name) loaded.add(name);
    if (url.includes('/src/cli/')) loaded.add(url.replace(/.*\\/src\\//, ''));
    return next(url, context);
  },
});
const { main } = await import(process.argv[1]);
if (main) await main(['--help']);
console.error(JSON.stringify([...loaded]));
`;

async function listLoaded(file: string): Promise<string[]> {
  const url = new URL(`../../../src/cli/${file}`, import.meta.url).href;
  const args = ['--no-warnings', '--input-type=module', '--eval', SCRIPT, url];
  const { stderr } = await run(process.execPath, args);
  return JSON.parse(stderr);
}

describe('the start of', () => {
  it('millrace --help loads no command and no package', async () => {
    const loaded = await listLoaded('main.ts');
    const names = 'command config main option-parser options output'.split(' ');
    expect(loaded.sort()).toEqual(names.map((name) => `cli/${name}.ts`));
  });

  it('millrace serve loads no package for webhooks, Docker, gRPC or handlers', async () => {
    const loaded = await listLoaded('commands/serve.ts');
    expect(loaded).toContain('fastify');
    const unneeded = ['undici', '@grpc/grpc-js', 'piscina', 'systeminformation'];
    expect(loaded.filter((each) => unneeded.includes(each))).toEqual([]);
    // See base/net/node-http.ts.
    expect(loaded).not.toContain('import of node:http');
  });

  it.each([
    'resources/pod-parts.ts',
    'endpoints/endpoints.ts',
    'deploy/target.ts',
    'resources/keys.ts',
    '../client.ts',
  ])('%s loads no package: the descriptions of operations need zod', async (file) => {
    const loaded = await listLoaded(file);
    expect(loaded.filter((each) => !each.startsWith('cli/'))).toEqual([]);
  });

  it('a worker process loads no package of the platform', async () => {
    const loaded = await listLoaded('worker/run-worker.ts');
    expect(loaded).toContain('piscina');
    const unneeded = ['fastify', 'zod', 'prom-client', 'undici', '@grpc/grpc-js'];
    expect(loaded.filter((each) => unneeded.includes(each))).toEqual([]);
    expect(loaded).not.toContain('import of node:http');
  });
});
