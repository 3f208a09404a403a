// What the packages may contain, and how large they may be: a file that got in by accident stops the release.

/** What `npm pack --json` says of a tarball. */
export interface PackedFiles {
  filename: string;
  /** Bytes of the tarball. */
  size: number;
  unpackedSize: number;
  files: readonly { path: string; size: number }[];
}

export interface Expectation {
  /** Each file matches one of them. */
  allowed: readonly RegExp[];
  required: readonly string[];
  maxBytes: number;
  maxUnpackedBytes: number;
}

const MB = 1_048_576;
/** Never in a package, also where `allowed` would let them in. */
const FORBIDDEN = /(^|\/)(\.env|\.npmrc|node_modules)|\.(tgz|pem|key|map|db|log)$/;

export const EXPECTATIONS: Readonly<Record<string, Expectation>> = {
  millrace: {
    allowed: [
      /^(ARCHITECTURE|CHANGELOG|CONTRIBUTING|README|SECURITY)\.md$/,
      /^(LICENSE|package\.json|bin\/millrace\.js)$/,
      /^deploy\/[^/]+\.(conf|json|service)$/,
      /^deploy\/kubernetes\/(base|monitoring)\/[^/]+\.(json|yaml)$/,
      /^deploy\/prometheus-alerts\.yaml$/,
      /^dist\/.*\.(d\.ts|js)$/,
      /^dist\/packages\/.*\.proto$/,
      /^dist\/THIRD-PARTY-LICENSES\.txt$/,
      /^dist\/cli\/commands\/init-template\//,
      /^dist\/console\/.*\.(br|css|gz|html|js|svg)$/,
      /^dist\/process\/python\/[^/]+\.py$/,
      /^dist\/wire\/link\/worker\.proto$/,
      /^docs\/(?!decisions\/).*\.(md|json|svg)$/,
      /^handlers\/(README\.md|.*(?<!\.test)\.ts)$/,
    ],
    required: [
      ...[
        'LICENSE',
        'README.md',
        'dist/THIRD-PARTY-LICENSES.txt',
        'CHANGELOG.md',
        'bin/millrace.js',
        'dist/wire/link/worker.proto',
      ],
      ...['index', 'client', 'testing', 'server', 'outgoing', 'process'].flatMap((name) => [
        ...[`dist/${name}.js`, `dist/${name}.d.ts`],
      ]),
      ...['dist/cli/main.js', 'dist/console/index.html', 'docs/openapi.json'],
      ...['deploy/millrace.service', 'deploy/nginx-platform.conf', 'deploy/prometheus-alerts.yaml'],
      'deploy/kubernetes/base/kustomization.yaml',
    ],
    maxBytes: 2.5 * MB,
    maxUnpackedBytes: 9 * MB,
  },
  'millrace-client': {
    allowed: [/^(LICENSE|README\.md|package\.json|client\.js)$/, /^types\/.*\.d\.ts$/],
    required: ['LICENSE', 'README.md', 'client.js', 'types/client.d.ts'],
    maxBytes: MB / 4,
    maxUnpackedBytes: MB,
  },
};

/** @param output of `npm pack --json`: npm 11 prints an array, later versions an object by name */
export function readPacked(output: string): PackedFiles {
  const given: Record<string, PackedFiles> = JSON.parse(output);
  const [packed] = Object.values(given);
  if (packed) return packed;
  throw new Error(`npm pack printed no package: ${output}`);
}

/** What is wrong; empty if nothing is. */
export function findContentProblems(
  { filename, files, size, unpackedSize }: PackedFiles,
  { allowed, maxBytes, maxUnpackedBytes, required }: Expectation,
): string[] {
  const paths = files.map(({ path }) => path);
  const isExpected = (path: string) =>
    !FORBIDDEN.test(path) && allowed.some((pattern) => pattern.test(path));
  const problems = [
    ...paths.filter((path) => !isExpected(path)).map((path) => `${path} is not expected in it`),
    ...required.filter((path) => !paths.includes(path)).map((path) => `${path} is missing`),
  ];
  if (size > maxBytes) problems.push(`it has ${size} bytes, expected at most ${maxBytes}`);
  if (unpackedSize > maxUnpackedBytes) {
    problems.push(`its files have ${unpackedSize} bytes, expected at most ${maxUnpackedBytes}`);
  }
  return problems.map((problem) => `${filename}: ${problem}`);
}
