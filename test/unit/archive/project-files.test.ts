// Which files of a project belong in its archive.
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { listProjectFiles } from '../../../src/archive/project-files.ts';
import { ARCHIVE_LIMITS } from '../../../src/wire/archive-limits.ts';

let root: string;
let project: string;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'millrace-project-'));
  project = join(root, 'packages', 'echo');
  await mkdir(project, { recursive: true });
});

afterEach(() => rm(root, { recursive: true }));

async function write(files: Readonly<Record<string, string>>, folder = project): Promise<void> {
  for (const [path, content] of Object.entries(files)) {
    await mkdir(join(folder, dirname(path)), { recursive: true });
    await writeFile(join(folder, path), content);
  }
}

async function listPaths(): Promise<string[]> {
  const { files } = await listProjectFiles(project);
  return files.map(({ path }) => path);
}

describe('listProjectFiles', () => {
  it('lists files with their sizes, sorted, without packages, version control and platform data', async () => {
    await write({
      'package.json': '{}',
      'src/handler.ts': 'export',
      'node_modules/zod/index.js': '',
      'src/node_modules/x.js': '',
      '.git/config': '',
      '.millrace/millrace.db': '',
      'var/data/millrace.db': '',
      'var/data/keys': '',
      'var/kept.txt': '',
    });
    const { files, omissions } = await listProjectFiles(project);
    expect(files).toEqual([
      { path: 'package.json', bytes: 2 },
      { path: 'src/handler.ts', bytes: 6 },
      { path: 'var/kept.txt', bytes: 0 },
    ]);
    expect(omissions.map(({ path }) => path).toSorted()).toEqual([
      '.git/',
      '.millrace/',
      'node_modules/',
      'src/node_modules/',
      'var/data/',
    ]);
  });

  it('leaves out the tarball of millrace that package.json names, and no other one', async () => {
    await write({
      'package.json': '{"dependencies":{"millrace":"file:vendor/millrace-0.1.0.tgz"}}',
      'vendor/millrace-0.1.0.tgz': '',
      'vendor/other.tgz': '',
    });
    const { files, omissions } = await listProjectFiles(project);
    expect(files.map(({ path }) => path)).toEqual(['package.json', 'vendor/other.tgz']);
    expect(omissions).toEqual([{ path: 'vendor/millrace-0.1.0.tgz', reason: 'tool' }]);
    for (const manifest of ['no JSON', '{}', '{"dependencies":{"millrace":"1.0.0"}}']) {
      await write({ 'package.json': manifest });
      expect(await listPaths()).toContain('vendor/millrace-0.1.0.tgz');
    }
  });

  it('leaves out what is probably secret, also in folders', async () => {
    const secrets = [
      '.env',
      '.env.local',
      '.npmrc',
      'certs/tls.pem',
      'a/TLS.KEY',
      'id_rsa',
      '.ssh/x',
    ];
    await write(Object.fromEntries(['handler.ts', ...secrets].map((path) => [path, ''])));
    const { files, omissions } = await listProjectFiles(project);
    expect(files.map(({ path }) => path)).toEqual(['handler.ts']);
    expect(omissions.every(({ reason }) => reason === 'secret')).toBe(true);
    expect(omissions).toHaveLength(secrets.length);
  });

  it('never lists a file of `serve --key-file`, whatever its name', async () => {
    const keys = 'MILLRACE_ADMIN_KEY=mr_a\nMILLRACE_WORKER_KEY=mr_b\n';
    await write({
      '.millraceignore': '!keys\n',
      'handler.ts': '',
      keys,
      'var/secrets.txt': keys,
      'README.md': `Run it with\n\n${keys}`,
    });
    expect(await listPaths()).toEqual(['.millraceignore', 'README.md', 'handler.ts']);
    const { omissions } = await listProjectFiles(project);
    expect(omissions).toContainEqual({ path: 'keys', reason: 'tool' });
  });

  it('follows .gitignore, as git does', async () => {
    await write({
      '.gitignore': '*.log\n!kept.log\n/build\ncache/\n# comment\nDOCS\n',
      'handler.ts': '',
      'a.log': '',
      'kept.log': '',
      'build/x.js': '',
      'src/build/x.js': '',
      'src/cache/x': '',
      'docs/x.txt': '',
      'src/.gitignore': '!a.log\nlocal.ts\n',
      'src/a.log': '',
      'src/local.ts': '',
      'local.ts': '',
    });
    const paths = await listPaths();
    execFileSync('git', ['init', '-q'], { cwd: project });
    const listing = ['ls-files', '--others', '--exclude-standard'];
    const git = execFileSync('git', listing, { cwd: project, encoding: 'utf8' });
    expect(paths).toEqual(git.trim().split('\n').toSorted());
    expect(paths).toContain('src/a.log');
    expect(paths).not.toContain('src/local.ts');
  });

  it('follows the .gitignore files above it up to the repository', async () => {
    await write({ '.gitignore': '*.log\n/packages/echo/out\n' }, root);
    await write({ 'handler.ts': '', 'a.log': '', 'out/x.js': '' });
    expect(await listPaths()).toEqual(['a.log', 'handler.ts', 'out/x.js']);
    await mkdir(join(root, '.git'));
    expect(await listPaths()).toEqual(['handler.ts']);
    await write({ '.gitignore': 'packages/\n' }, root);
    expect(await listPaths()).toEqual(['a.log', 'handler.ts', 'out/x.js']);
  });

  it('reads .millraceignore instead of .gitignore, which can bring secrets back', async () => {
    await write({
      '.gitignore': 'dist\n!.env\n',
      '.millraceignore': 'src\n!ca.pem\n!node_modules\n',
      'dist/handler.js': '',
      'src/handler.ts': '',
      'ca.pem': '',
      '.env': '',
      'node_modules/x.js': '',
    });
    expect(await listPaths()).toEqual([
      '.gitignore',
      '.millraceignore',
      'ca.pem',
      'dist/handler.js',
    ]);
  });

  it('lets no .gitignore bring secrets back', async () => {
    await write({ '.gitignore': '!.env\n', '.env': '', 'handler.ts': '' });
    expect(await listPaths()).toEqual(['.gitignore', 'handler.ts']);
  });

  it('refuses links and pipes that no ignore file names', async () => {
    await write({ 'handler.ts': '' });
    await symlink('handler.ts', join(project, 'link'));
    await expect(listProjectFiles(project)).rejects.toThrow('"link" is a symbolic link');
    await write({ '.gitignore': 'link\n' });
    execFileSync('mkfifo', [join(project, 'pipe')]);
    await expect(listProjectFiles(project)).rejects.toThrow(
      '"pipe" is neither a file nor a folder',
    );
  });

  it('refuses too many files, and paths that no archive may have', async () => {
    await write({ a: '', b: '' });
    const limits = { ...ARCHIVE_LIMITS, files: 1 };
    await expect(listProjectFiles(project, limits)).rejects.toThrow('more than 1 files');
    await write({ 'bad\nname': '' });
    await expect(listProjectFiles(project)).rejects.toThrow('"bad\\nname" contains a control');
  });
});
