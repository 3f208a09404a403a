// The decisions of the release script.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseReleaseArguments } from '../../../scripts/release/arguments.ts';
import { composeProject, listBundled } from '../../../scripts/release/bill-of-materials.ts';
import {
  EXPECTATIONS,
  type Expectation,
  findContentProblems,
} from '../../../scripts/release/package-contents.ts';
import {
  findProblems,
  type RepositoryState,
  readSection,
} from '../../../scripts/release/repository.ts';

const ROOT = resolve(import.meta.dirname, '../../..');
const HEAD = '0123456789abcdef0123456789abcdef01234567';
const CHANGELOG = `# Changelog

## Unreleased

## 1.2.0 - 2026-11-23

### Added

- Everything.

## 1.1.0 - 2026-10-01

### Fixed
`;

const READY: RepositoryState = {
  ...{ branch: 'main', status: '', head: HEAD, tags: ['v1.1.0'], tested: undefined },
  ...{ packageVersion: '1.2.0', lockVersion: '1.2.0', changelog: CHANGELOG },
  repository: 'git+https://git.example/millrace.git',
};

describe('a release', () => {
  it('may be made of a clean main with a new version and its changelog section', () => {
    expect(findProblems(READY)).toEqual([]);
    expect(findProblems({ ...READY, tested: HEAD.slice(0, 12) })).toEqual([]);
  });

  it.each<[string, Partial<RepositoryState>, RegExp]>([
    ['of another branch', { branch: 'work' }, /the branch is work; release from main/],
    ['with changed files', { status: ' M src/index.ts\n' }, /commit or remove them:\n M src/],
    [
      'with a version that is none',
      { packageVersion: '1.2', lockVersion: '1.2' },
      /is 1\.2; write/,
    ],
    ['with another version in the lock file', { lockVersion: '1.1.0' }, /has version 1\.1\.0/],
    ['whose tag exists', { tags: ['v1.2.0'] }, /the tag v1\.2\.0 exists; raise/],
    ['of a package that names no repository', { repository: undefined }, /names no repository/],
    ['without a changelog section', { changelog: '# Changelog\n' }, /no section "## 1\.2\.0/],
    [
      'with unreleased changes in the changelog',
      { changelog: CHANGELOG.replace('## Unreleased\n', '## Unreleased\n\n- More.\n') },
      /"## Unreleased" has text/,
    ],
    ['whose tests ran for another commit', { tested: 'fedcba9' }, /--tested is fedcba9/],
  ])('%s is refused', (_what, changes, problem) => {
    const problems = findProblems({ ...READY, ...changes });
    expect(problems.some((each) => problem.test(each))).toBe(true);
  });

  it('is described by its section of the changelog', () => {
    expect(readSection(CHANGELOG, '1.2.0')).toBe('### Added\n\n- Everything.');
    expect(readSection(CHANGELOG, '1.1.0')).toBeUndefined();
    expect(readSection('## [1.0.0] - 2026-01-01\n- One.', '1.0.0')).toBe('- One.');
    expect(readSection('## 1.0.0\n- No date.', '1.0.0')).toBeUndefined();
  });

  it('refuses options that it does not know, and skips no installation', () => {
    expect(parseReleaseArguments(['--dry-run', '--installed'])).toMatchObject({ out: 'release' });
    expect(() => parseReleaseArguments(['--publish'])).toThrow("Unknown option '--publish'");
    expect(() => parseReleaseArguments(['--installed'])).toThrow('--installed needs --dry-run');
    expect(() => parseReleaseArguments(['--tested', 'main'])).toThrow('must be the hash');
  });
});

describe('the contents of a package', () => {
  const expectation: Expectation = EXPECTATIONS['millrace-client'] ?? {
    ...{ allowed: [], required: [], maxBytes: 0, maxUnpackedBytes: 0 },
  };
  const pack = (paths: readonly string[], size = 10) =>
    findContentProblems(
      {
        ...{ filename: 'p.tgz', size, unpackedSize: 10 },
        files: paths.map((path) => ({ path, size: 1 })),
      },
      expectation,
    );
  const needed = ['LICENSE', 'README.md', 'package.json', 'client.js', 'types/client.d.ts'];

  it('are those that are expected, in the expected size', () => {
    expect(pack(needed)).toEqual([]);
    expect(pack([...needed, '.env'])).toEqual(['p.tgz: .env is not expected in it']);
    expect(pack([...needed, 'types/client.test.ts'])).toHaveLength(1);
    expect(pack(needed.slice(1))).toEqual(['p.tgz: LICENSE is missing']);
    expect(pack(needed, 1_000_000)[0]).toMatch(/has 1000000 bytes, expected at most/);
  });

  it('never have secrets or packages of millrace, wherever they lie', () => {
    const own = EXPECTATIONS['millrace'];
    if (!own) throw new Error('no expectation');
    const paths = [
      'deploy/secrets/keys',
      'deploy/compose.yaml',
      'docs/.env.md',
      'dist/node_modules/a.js',
      'handlers/x.test.ts',
      'dist/a.js.map',
    ];
    for (const path of paths) {
      const packed = { filename: 'p', size: 1, unpackedSize: 1, files: [{ path, size: 1 }] };
      const problems = findContentProblems(packed, own);
      expect(problems).toContain(`p: ${path} is not expected in it`);
    }
  });
});

describe('the bill of materials', () => {
  const lock = {
    packages: {
      '': {},
      'node_modules/zod': { version: '4.0.0', peerDependencies: { unused: '1' } },
      'node_modules/preact': { version: '11.0.0', dev: true, dependencies: { a: '1' } },
      'node_modules/preact/node_modules/a': { version: '1.0.0', optionalDependencies: { b: '1' } },
      'node_modules/a': { version: '2.0.0' },
      'node_modules/b': { version: '1.0.0', dev: true, peerDependencies: { zod: '4' } },
      'node_modules/other': { version: '1.0.0', dev: true },
    },
  };

  it('has the dependencies and what the bundles contain, at the versions of the lock file', () => {
    const manifest = { name: 'p', version: '1.0.0', dependencies: { zod: '4.0.0' } };
    const peerDependenciesMeta = { unused: { optional: true } };
    const zod = { ...lock.packages['node_modules/zod'], peerDependenciesMeta };
    const packages = { ...lock.packages, 'node_modules/zod': zod };
    const project = composeProject(manifest, { packages }, ['preact']);
    expect(project.manifest.dependencies).toEqual({ zod: '4.0.0', preact: '11.0.0' });
    expect(JSON.parse(JSON.stringify(project.lock)).packages).toEqual({
      '': project.manifest,
      'node_modules/zod': zod,
      'node_modules/preact': { version: '11.0.0', dependencies: { a: '1' } },
      'node_modules/preact/node_modules/a': packages['node_modules/preact/node_modules/a'],
      'node_modules/b': { version: '1.0.0', peerDependencies: { zod: '4' } },
    });
    expect(() => composeProject(manifest, lock, ['gone'])).toThrow('has no gone');
  });

  it('knows what the console bundles', () => {
    const bundled = listBundled(resolve(ROOT, 'console/src'));
    expect(bundled).toContain('preact');
    const { packages } = JSON.parse(readFileSync(resolve(ROOT, 'package-lock.json'), 'utf8'));
    for (const name of bundled) expect(packages).toHaveProperty([`node_modules/${name}`]);
  });
});

it('prints its usage', () => {
  const script = resolve(ROOT, 'scripts/release/release.ts');
  const printed = execFileSync(process.execPath, [script, '--help'], { encoding: 'utf8' });
  expect(printed).toContain('Publishes nothing');
});
