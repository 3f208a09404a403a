// The environment of a model process: the worker's, with its devices, and what the child needs.
import { delimiter } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The child's descriptor for frames; the standard ones belong to its libraries, which print. */
export const FRAME_DESCRIPTOR = 3;

/** Folder of millrace_model.py, last in the module search path: a copy of the author's own wins. */
const LIBRARY = fileURLToPath(new URL('./python', import.meta.url));

export function buildEnvironment(
  own: Readonly<Record<string, string | undefined>>,
): Record<string, string | undefined> {
  // biome-ignore lint/style/noProcessEnv: the child inherits the environment that handlers see.
  const inherited = process.env;
  // Without it, Python holds back what is printed to a pipe.
  const merged = { PYTHONUNBUFFERED: '1', ...inherited, ...own };
  const { PYTHONPATH: path } = merged as Record<string, string | undefined>;
  return {
    ...merged,
    PYTHONPATH: path ? `${path}${delimiter}${LIBRARY}` : LIBRARY,
    MILLRACE_MODEL_FD: String(FRAME_DESCRIPTOR),
  };
}
