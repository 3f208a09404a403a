// Moves npm's lock file to the root of an archive, which holds some packages of a workspace. Pure.
import { posix } from 'node:path';
import { isPlainObject } from '../../wire/json.ts';

/** The member `packages` of package-lock.json. */
export type Lock = Readonly<Record<string, unknown>>;

interface Move {
  /** Folder of the lock file in the root of the archive; "." for the root itself. */
  from: string;
  /** The package.json of each local package, by its folder in the root; "." for the root. */
  manifests: ReadonlyMap<string, Record<string, unknown>>;
}

const OWN_NAME = 'millrace';
/** Lists of a package.json that the lock file repeats. */
const LISTS = ['dependencies', 'optionalDependencies', 'peerDependencies'];
const REPEATED = ['name', 'version', ...LISTS, 'peerDependenciesMeta', 'engines', 'bin'];

export function moveLock(lock: Lock, { from, manifests }: Move): Record<string, unknown> {
  const moved: Record<string, unknown> = {};
  for (const [folder, manifest] of manifests) {
    moved[folder === '.' ? '' : folder] = Object.fromEntries(
      REPEATED.flatMap((key) => (manifest[key] === undefined ? [] : [[key, manifest[key]]])),
    );
  }
  for (const [path, entry] of Object.entries(lock)) {
    const place = posix.join(from, path);
    const [holder = '', first] = place.split(/\/?node_modules\//, 2);
    // Local packages are there already, with what their package.json has now.
    if (first === undefined || !isPlainObject(entry)) continue;
    if (!manifests.has(holder || '.') || new RegExp(`node_modules/${OWN_NAME}(/|$)`).test(place))
      continue;
    if (entry['link'] !== true) moved[place] = entry;
    else if (typeof entry['resolved'] === 'string') {
      const resolved = posix.join(from, entry['resolved']);
      if (manifests.has(resolved)) moved[place] = { resolved, link: true };
    }
  }
  for (const [folder, manifest] of manifests) {
    const listed = LISTS.flatMap((list) => Object.entries(Object(manifest[list])));
    for (const [name, spec] of listed) {
      const path = /^file:(.*)$/.exec(String(spec))?.[1];
      const resolved = path === undefined ? undefined : posix.join(folder, path);
      if (resolved === undefined || !manifests.has(resolved)) continue;
      const isLinked = listPlaces(folder).some((place) => {
        const link = moved[posix.join(place, 'node_modules', name)];
        return isPlainObject(link) && link['link'] === true;
      });
      if (!isLinked) moved[posix.join('node_modules', name)] = { resolved, link: true };
    }
  }
  return moved;
}

/** The folder and those above it. */
function listPlaces(folder: string): string[] {
  return folder === '.' ? ['.'] : [folder, ...listPlaces(posix.dirname(folder))];
}
