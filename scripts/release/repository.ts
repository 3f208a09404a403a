// Checks that the repository is ready for a release: the branch, the files, the version and its changelog section.

export interface RepositoryState {
  branch: string;
  /** Output of `git status --porcelain`. */
  status: string;
  /** Hash of the current commit. */
  head: string;
  tags: readonly string[];
  packageVersion: string;
  /** Of package-lock.json. */
  lockVersion: string;
  /** `repository` of package.json. */
  repository: string | undefined;
  changelog: string;
  tested: string | undefined;
}

const RELEASE_BRANCH = 'main';
const VERSION = /^\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?$/;

export function tagOf(version: string): string {
  return `v${version}`;
}

/** What is wrong, with the way out of it; empty if nothing is. */
export function findProblems(state: RepositoryState): string[] {
  const { branch, changelog, head, lockVersion, packageVersion, repository, status, tags, tested } =
    state;
  const problems: string[] = [];
  if (branch !== RELEASE_BRANCH) {
    problems.push(`the branch is ${branch}; release from ${RELEASE_BRANCH}`);
  }
  if (status !== '') {
    problems.push(`files are changed or new, commit or remove them:\n${status.trimEnd()}`);
  }
  if (!VERSION.test(packageVersion)) {
    problems.push(`package.json: version is ${packageVersion}; write it as 1.2.3`);
  }
  if (lockVersion !== packageVersion) {
    problems.push(
      `package-lock.json has version ${lockVersion}, package.json ${packageVersion}; run npm install --package-lock-only`,
    );
  }
  if (repository === undefined) {
    problems.push(
      'package.json names no repository; write repository, homepage and bugs: npm takes no provenance without them',
    );
  }
  if (tags.includes(tagOf(packageVersion))) {
    problems.push(`the tag ${tagOf(packageVersion)} exists; raise the version in package.json`);
  }
  if (readSection(changelog, packageVersion) === undefined) {
    problems.push(
      `CHANGELOG.md has no section "## ${packageVersion} - YYYY-MM-DD" with text; write it from "## Unreleased"`,
    );
  }
  if (readSection(changelog, 'Unreleased') !== undefined) {
    problems.push('CHANGELOG.md: "## Unreleased" has text; move it to the section of the version');
  }
  if (tested !== undefined && !head.startsWith(tested)) {
    problems.push(`--tested is ${tested}, and the current commit is ${head}; run CI for it first`);
  }
  return problems;
}

/** The text below the version's heading; undefined if there is none. */
export function readSection(changelog: string, version: string): string | undefined {
  const sections = changelog.split(/^## /m).slice(1);
  for (const section of sections) {
    const end = section.indexOf('\n');
    const [heading, text] = end < 0 ? [section, ''] : [section.slice(0, end), section.slice(end)];
    const [, name, date] = /^\[?([^\]\s]+)\]?(?: - (\d{4}-\d{2}-\d{2}))?\s*$/.exec(heading) ?? [];
    if (name !== version || (version !== 'Unreleased' && date === undefined)) continue;
    const hasText = text.split('\n').some((line) => line.trim() !== '' && !line.startsWith('#'));
    return hasText ? text.trim() : undefined;
  }
  return undefined;
}
