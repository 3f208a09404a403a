// Makes a release without publishing it: checks the repository, runs the tests, packs both packages, checks what is in
// them, writes their bills of materials and checksums, and tags the commit. CONTRIBUTING.md says how to use it.
// It imports no package: it runs before `npm ci`.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { BUNDLED_PACKAGES } from '../bundled-packages.ts';
import { parseReleaseArguments, type ReleaseOptions, USAGE } from './arguments.ts';
import { listBundled, writeBill } from './bill-of-materials.ts';
import { EXPECTATIONS, findContentProblems, readPacked } from './package-contents.ts';
import { findProblems, type RepositoryState, readSection, tagOf } from './repository.ts';

const CLIENT_FOLDER = 'dist-client';

class ReleaseError extends Error {}

function main(args: readonly string[]): void {
  if (args.includes('--help')) {
    process.stdout.write(USAGE);
    return;
  }
  const options = parseReleaseArguments(args);
  const state = readState(options);
  say('checking the repository');
  report(findProblems(state), options);
  if (!options.isInstalled) {
    say('npm ci');
    runNpm(['ci'], '.', 'inherit');
  }
  const signatures = verifySignatures(options);
  if (options.tested === undefined) {
    say('npm test and npm run test:full');
    runNpm(['test'], '.', 'inherit');
    runNpm(['run', 'test:full'], '.', 'inherit');
  }
  say('npm run build:client');
  runNpm(['run', 'build:client'], '.', 'inherit');
  const out = resolve(options.out);
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  for (const folder of ['.', CLIENT_FOLDER]) packAndCheck(folder, out);
  writeRelease(out, { ...state, signatures });
  writeChecksums(out);
  finish(out, state, options);
}

function readState({ tested }: ReleaseOptions): RepositoryState {
  return {
    branch: git(['rev-parse', '--abbrev-ref', 'HEAD']).trim(),
    status: git(['status', '--porcelain']),
    head: git(['rev-parse', 'HEAD']).trim(),
    tags: git(['tag', '--list']).split('\n'),
    packageVersion: readJson('package.json').version,
    lockVersion: readJson('package-lock.json').version,
    repository: readJson('package.json').repository?.url,
    changelog: readFileSync('CHANGELOG.md', 'utf8'),
    tested,
  };
}

/** A dry run shows what a release would refuse, and goes on. @throws ReleaseError */
function report(problems: readonly string[], { isDryRun }: ReleaseOptions): void {
  if (problems.length === 0) return;
  const listed = problems.map((problem) => `  - ${problem}`).join('\n');
  if (!isDryRun) throw new ReleaseError(`the repository is not ready:\n${listed}`);
  say(`a release would stop here:\n${listed}`);
}

/** Of the packages in node_modules. @throws ReleaseError */
function verifySignatures({ isOffline }: ReleaseOptions): 'verified' | 'not verified' {
  if (isOffline) {
    say('signatures of the registry: not verified, because of --offline');
    return 'not verified';
  }
  say('npm audit signatures');
  try {
    runNpm(['audit', 'signatures'], '.', 'inherit');
  } catch {
    throw new ReleaseError(
      'npm audit signatures failed: a package was changed, or the registry cannot be reached; with --offline the release says that nothing was verified',
    );
  }
  return 'verified';
}

/** @throws ReleaseError */
function packAndCheck(folder: string, out: string): void {
  const manifest = readJson(join(folder, 'package.json'));
  const { name } = manifest;
  say(`packing ${name}`);
  const packed = readPacked(folder === '.' ? packOwn(out) : runNpm(packing(out), folder));
  const expectation = EXPECTATIONS[name];
  if (!expectation) throw new ReleaseError(`nothing says what the package ${name} contains`);
  const problems = findContentProblems(packed, expectation);
  if (problems.length > 0) throw new ReleaseError(problems.join('\n'));
  const linting = ['exec', '--', 'publint', 'run', join(out, packed.filename), '--strict'];
  runNpm(linting, '.', 'inherit');
  const bundled = folder === '.' ? [...listBundled(), ...BUNDLED_PACKAGES] : [];
  const path = join(out, `${name}-${manifest.version}.cdx.json`);
  writeBill(manifest, { bundled, path, run: (args, at) => runNpm(args, at) });
  const listed = packed.files.map(({ path: file, size }) => `${size}\t${file}`).join('\n');
  writeFileSync(join(out, `${name}-${manifest.version}.files.txt`), `${listed}\n`);
}

function packing(out: string): string[] {
  return ['pack', '--json', '--ignore-scripts', '--pack-destination', out];
}

function packOwn(out: string): string {
  const args = [resolve(import.meta.dirname, 'pack.ts'), out, ...findNpm()];
  return execFileSync(process.execPath, args, { encoding: 'utf8', maxBuffer: 2 ** 28 });
}

function writeRelease(
  out: string,
  { head, packageVersion, signatures, tested }: RepositoryState & { signatures: string },
): void {
  const tests = tested === undefined ? 'passed here' : `passed elsewhere, for ${tested}`;
  const release = {
    version: packageVersion,
    commit: head,
    node: process.version,
    tests,
    signatures,
  };
  writeFileSync(join(out, 'release.json'), `${JSON.stringify(release, null, 2)}\n`);
}

/** In the format of `sha256sum --check`. */
function writeChecksums(out: string): void {
  const lines = readdirSync(out)
    .sort()
    .map((name) => {
      const hash = createHash('sha256').update(readFileSync(join(out, name)));
      return `${hash.digest('hex')}  ${name}\n`;
    });
  writeFileSync(join(out, 'SHA256SUMS'), lines.join(''));
}

function finish(
  out: string,
  { changelog, packageVersion }: RepositoryState,
  { isDryRun }: ReleaseOptions,
) {
  const tag = tagOf(packageVersion);
  const section = readSection(changelog, packageVersion);
  if (isDryRun || section === undefined) {
    say(`dry run: the results are in ${out}; no tag was made`);
    return;
  }
  git([
    'tag',
    '--annotate',
    '--cleanup=verbatim',
    '--message',
    `Millrace ${packageVersion}\n\n${section}`,
    tag,
  ]);
  say(`the results are in ${out}, and the tag ${tag} is made. Nothing is published. To publish:
  git push origin main ${tag}
  npm publish ${join(out, `millrace-${packageVersion}.tgz`)}
  npm publish ${join(out, `millrace-client-${packageVersion}.tgz`)}`);
}

function git(args: readonly string[]): string {
  return execFileSync('git', args, { encoding: 'utf8' });
}

/** The npm that runs this script, or else the one on PATH. */
function findNpm(): string[] {
  const own = process.env['npm_execpath'];
  return own === undefined ? ['npm'] : [process.execPath, own];
}

/** @throws Error if it fails */
function runNpm(
  args: readonly string[],
  folder: string,
  output: 'inherit' | 'pipe' = 'pipe',
): string {
  const [program = 'npm', ...first] = findNpm();
  const stdio = ['ignore', output, 'inherit'] as const;
  const options = { cwd: folder, encoding: 'utf8', maxBuffer: 2 ** 28 } as const;
  return execFileSync(program, [...first, ...args], { ...options, stdio: [...stdio] }) ?? '';
}

/** Our own manifests. */
interface Manifest {
  name: string;
  version: string;
  repository?: { url: string };
}

function readJson(path: string): Manifest {
  return JSON.parse(readFileSync(path, 'utf8'));
}

function say(text: string): void {
  process.stderr.write(`release: ${text}\n`);
}

try {
  main(process.argv.slice(2));
} catch (error) {
  say(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
