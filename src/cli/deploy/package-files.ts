// Packs the files of a project, says what is in the archive, and checks that a worker could load the
// handler from it.
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join, relative, sep } from 'node:path';
import type {
  Omission,
  OmissionReason,
  PackedArchive,
  ProjectFile,
  ProjectFiles,
} from '../../archive/project-files.ts';
import { ARCHIVE_LIMITS } from '../../wire/archive-limits.ts';
import { CommandError, NotLoadedError } from '../command.ts';
import { inheritEnvironment } from '../config.ts';
import { formatSize } from '../output.ts';
import type { ArchiveLayout } from './archive-layout.ts';
import { type Project, toPath } from './project.ts';

/** Number of files that a summary names. */
const NAMED_FILES = 3;
/** Number of paths that a line about secret or left-out files names. */
const NAMED_PATHS = 5;

const NPM_SETTINGS = '.npmrc';
const NPM_SETTINGS_HINT =
  `Workers run npm without .npmrc. If npm needs this file: write \${NPM_TOKEN} in place of the token, ` +
  'add the line !.npmrc to .millraceignore, and give the token with --env NPM_TOKEN=TOKEN';

const NPM_TOKEN_HINT =
  `Whoever may read the endpoint's versions can read it: write \${NPM_TOKEN} in its place, and give the token with --env ` +
  'NPM_TOKEN=TOKEN';

const REASONS: Readonly<Record<OmissionReason, string>> = {
  ignored: 'ignored',
  secret: 'perhaps secret',
  tool: 'packages, version control or platform data',
};

/** A token itself; a variable in its place is `${NPM_TOKEN}`. */
const NPM_TOKEN = /^[^#;\n]*:?_(?:authToken|auth|password)\s*=\s*(?!["']?\$\{)\S/m;

export interface PackedProject extends PackedArchive {
  layout: ArchiveLayout;
  listed: ProjectFiles;
  /** Paths of the settings of npm that have a token. */
  npmTokens: string[];
}

/** @throws CommandError if the files break a limit or a rule, or do not contain the handler */
export async function packProject(project: Project): Promise<PackedProject> {
  const { planArchive } = await import('./archive-layout.ts');
  const { packFiles } = await import('../../archive/project-files.ts');
  return explainArchive(async () => {
    const layout = planArchive(project);
    const { root } = layout;
    const listed = await listFiles(layout);
    checkSelection(listed, layout.entry);
    const written = new Map(layout.written);
    const settings = join(relative(root, layout.folders[0]?.folder ?? root), NPM_SETTINGS);
    if (listed.secrets.includes(settings.split(sep).join('/'))) {
      // npm reads it where it runs.
      written.set(NPM_SETTINGS, await readFile(join(root, settings), 'utf8'));
    }
    const paths = new Set([...listed.files.map(({ path }) => path), ...written.keys()]);
    const packed = await packFiles(root, [...paths], ARCHIVE_LIMITS, written);
    return { ...packed, layout, listed, npmTokens: await findNpmTokens(root, listed.secrets) };
  });
}

/** Paths are those in the archive. */
async function listFiles({ files, folders, root }: ArchiveLayout): Promise<ProjectFiles> {
  const { listProjectFiles } = await import('../../archive/project-files.ts');
  const found = new Map<string, ProjectFile>();
  const secrets = new Set<string>();
  const omissions = new Map<string, Omission>();
  const ignoreFiles = new Set<string>();
  for (const { content, folder } of folders) {
    const listed = await listProjectFiles(folder, ARCHIVE_LIMITS, content);
    const move = (path: string) => join(relative(root, folder), path).split(sep).join('/');
    for (const file of listed.files) found.set(move(file.path), { ...file, path: move(file.path) });
    for (const path of listed.secrets) secrets.add(move(path));
    for (const each of listed.omissions) {
      omissions.set(move(each.path), { ...each, path: move(each.path) });
    }
    ignoreFiles.add(listed.ignoreFile);
  }
  for (const file of files) {
    const path = relative(root, file).split(sep).join('/');
    found.set(path, { path, bytes: (await stat(file)).size });
  }
  return {
    files: [...found.values()].toSorted((one, other) => (one.path < other.path ? -1 : 1)),
    secrets: [...secrets],
    // A folder in another one may have been listed by its own rules.
    omissions: [...omissions.values()].filter(
      ({ path }) => !found.has(path) && !folders.some(({ folder }) => isOf(root, folder, path)),
    ),
    ignoreFile: [...ignoreFiles].join(' or '),
  };
}

function isOf(root: string, folder: string, path: string): boolean {
  return path === `${relative(root, folder).split(sep).join('/')}/`;
}

async function findNpmTokens(folder: string, secrets: readonly string[]): Promise<string[]> {
  const settings = secrets.filter((path) => basename(path) === NPM_SETTINGS);
  const texts = await Promise.all(settings.map((path) => readFile(join(folder, path), 'utf8')));
  return settings.filter((_, index) => NPM_TOKEN.test(texts[index] ?? ''));
}

/** Turns broken rules of archives, and files that cannot be read, into errors without a stack. */
export async function explainArchive<T>(act: () => Promise<T>): Promise<T> {
  const { ArchiveError } = await import('../../archive/archive-paths.ts');
  try {
    return await act();
  } catch (error) {
    const isFileError = error instanceof Error && 'syscall' in error;
    if (error instanceof ArchiveError || isFileError) throw new CommandError(error.message);
    throw error;
  }
}

function checkSelection({ files, ignoreFile, omissions }: ProjectFiles, entry: string): void {
  if (!files.some(({ path }) => path === entry)) {
    const omission = omissions.find(({ path }) => path === entry || entry.startsWith(path));
    const reason = omission?.reason === 'ignored' ? ` by ${ignoreFile}` : '';
    throw new CommandError(
      `${entry} is left out of the archive${reason}; write a .millraceignore, which counts instead of .gitignore`,
    );
  }
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  if (bytes <= ARCHIVE_LIMITS.unpackedBytes) return;
  throw new CommandError(
    `The files have ${formatSize(bytes)}, and the limit is ${formatSize(ARCHIVE_LIMITS.unpackedBytes)}. ` +
      `The largest: ${nameLargest(files)}. Leave files out with .millraceignore; load models at the start of the handler`,
  );
}

/** Some lines; with `all`, one for each file. */
export function describePackage(packed: PackedProject, { all }: { all: boolean }): string {
  const { bytes, files, layout, listed, npmTokens, unpackedBytes } = packed;
  const { entry, packages, root } = layout;
  const sizes = `${formatSize(unpackedBytes)}, ${formatSize(bytes.length)} packed`;
  const count = files.length === 1 ? '1 file' : `${files.length} files`;
  const lines = [`${root}: ${count}, ${sizes}, handler ${entry}`];
  for (const { folder, name } of packages) lines.push(`  with ${name} of ${folder}`);
  const named = new Set(packages.map(({ folder }) => folder));
  const [own, ...others] = layout.folders.map(({ folder }) => folder);
  for (const path of [...others, ...layout.files]) {
    const place = toPath(own ?? root, path);
    if (!named.has(place)) lines.push(`  with ${place}`);
  }
  if (all) lines.push(...files.map((file) => `  ${file.path}  ${formatSize(file.bytes)}`));
  else if (files.length > 1) lines.push(`  largest: ${nameLargest(files)}`);
  lines.push(...describeOmissions(listed.omissions));
  if (
    listed.omissions.some(
      ({ path, reason }) => basename(path) === NPM_SETTINGS && reason === 'secret',
    )
  ) {
    lines.push(`  ${NPM_SETTINGS_HINT}`);
  }
  if (listed.secrets.length > 0) {
    lines.push(`  sent (perhaps secret): ${nameSome(listed.secrets)}`);
  }
  for (const path of npmTokens) lines.push(`  ${path} has a token. ${NPM_TOKEN_HINT}`);
  return lines.join('\n');
}

function describeOmissions(omissions: readonly Omission[]): string[] {
  const groups = Map.groupBy(omissions, ({ reason }) => reason);
  return [...groups].map(([reason, all]) => {
    return `  left out (${REASONS[reason]}): ${nameSome(all.map(({ path }) => path))}`;
  });
}

function nameSome(paths: readonly string[]): string {
  const more = paths.length > NAMED_PATHS ? ` and ${paths.length - NAMED_PATHS} more` : '';
  return `${paths.slice(0, NAMED_PATHS).join(', ')}${more}`;
}

function nameLargest(files: readonly { path: string; bytes: number }[]): string {
  return files
    .toSorted((one, other) => other.bytes - one.bytes)
    .slice(0, NAMED_FILES)
    .map(({ bytes, path }) => `${path} ${formatSize(bytes)}`)
    .join(', ');
}

/** Loads the handler from a copy of the packed files. @throws NotLoadedError */
export async function checkLoads(packed: PackedProject): Promise<void> {
  const { unpackArchive } = await import('../../archive/unpack.ts');
  const { findLoadProblem } = await import('../../worker/loading/load-check.ts');
  const temporary = await mkdtemp(join(tmpdir(), 'millrace-deploy-'));
  try {
    const copy = join(temporary, 'project');
    await unpackArchive(packed.bytes, copy);
    const { entry, root } = packed.layout;
    // The handler's code is the author's own, but needs no keys of the platform to load.
    const env = inheritEnvironment({ MILLRACE_KEY: undefined, RUNPOD_AI_API_KEY: undefined });
    const problem = await findLoadProblem({ copy, project: root, entry, env });
    if (problem === undefined) return;
    const { ignoreFile, omissions } = packed.listed;
    // Frames of a stack name packages that are not missing.
    const said = problem.replaceAll(/^ {4}at .*$/gm, '');
    const missing = omissions.find(({ path }) => said.includes(join(root, path)));
    const hint = missing ? `; ${missing.path} is left out (${ignoreFile})` : '';
    throw new NotLoadedError(`The handler does not load: ${problem}${hint}`);
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}
