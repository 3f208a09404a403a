// What the palette finds for a text: pages, endpoints, actions, a job with this ID, and jobs with this tag.

export interface Finding {
  name: string;
  /** What it is, behind the name. */
  kind: string;
  /** Path below the console's base, or an action. */
  target: string | (() => void);
}

/** Findings that the palette shows. */
const MOST = 12;
/** IDs of jobs: `01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d76`, `sync-…`, `key-…`. */
const JOB_ID = /^(?:[a-z]+-)?[\da-f]{8}(?:-?[\da-f]{4}){3}-?[\da-f]{12}(?:-[a-z\d]+)?$/i;

export function isJobId(text: string): boolean {
  return JOB_ID.test(text.trim());
}

/** Every word of the text is in the name or the kind; those whose name begins with the text first. */
export function findAmong(all: readonly Finding[], text: string): Finding[] {
  const wanted = text.trim().toLowerCase();
  const words = wanted.split(/\s+/);
  const found = all.filter(({ kind, name }) => {
    const searched = `${name} ${kind}`.toLowerCase();
    return words.every((word) => searched.includes(word));
  });
  const begins = ({ name }: Finding) => (name.toLowerCase().startsWith(wanted) ? 0 : 1);
  return found.toSorted((a, b) => begins(a) - begins(b)).slice(0, MOST);
}
