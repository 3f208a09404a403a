// Shortens the stack of a handler's error to the frames of the handler and its packages.
import { isAbsolute, relative, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { packageRoot } from '../base/package-info.ts';

interface StackView {
  /** Paths in this folder are shown relative to it. */
  folder: string;
  /** URL of the folder of this package. Default: where it is. */
  packageUrl?: string;
}

/** A frame: `at name (file:///path.ts:1:2)`, or with the place alone. */
const FRAME = /^\s+at /;

/** Node's own frames, and the step from the driver of a generator into it. */
const OF_NODE = /[( ]node:|\.(next|return|throw) \(<anonymous>\)$/;

/** Leaves out the frames of Millrace and of Node; keeps messages and causes. */
export function showOwnStack(stack: string, { folder, packageUrl }: StackView): string {
  const root = packageUrl ?? pathToFileURL(packageRoot).href;
  const own = [`${root}dist/`, `${root}src/`];
  const isForeign = (line: string) =>
    OF_NODE.test(line) || own.some((start) => line.includes(start));
  return stack
    .split('\n')
    .filter((line) => !FRAME.test(line) || !isForeign(line))
    .map((line) => (FRAME.test(line) ? shortenPlace(line, folder) : line))
    .join('\n');
}

function shortenPlace(frame: string, folder: string): string {
  return frame.replace(/file:\/\/[^\s)]*/, (place) => {
    const [, url = place, position = ''] = /^(.*?)(:\d+:\d+)?$/.exec(place) ?? [];
    const path = readPath(url);
    if (path === undefined) return place;
    const near = relative(folder, path);
    const isInside = !near.startsWith(`..${sep}`) && !isAbsolute(near);
    return (isInside ? near : path) + position;
  });
}

/** Undefined if it is not the URL of a file: a handler can write anything into its stack. */
function readPath(url: string): string | undefined {
  try {
    return fileURLToPath(url);
  } catch {
    return undefined;
  }
}
