// Finds records by user and name, so that a name can stand in for an ID. Only names that are DNS labels can.
import { ProblemError } from '../wire/problem.ts';
import { isDnsLabel } from '../wire/routes/route.ts';

/** IDs that a refusal lists. */
const MAX_LISTED = 10;

interface NamedRecord {
  userId: string;
  name: string;
}

/** Resolves the names of one kind of record; see `NameIndex`. */
export interface NamedRecords {
  /**
   * Returns the ID of the user's only record with this name. An ID, and a name that no record of the user
   * has, is returned unchanged. @throws ProblemError `conflict` if several records have the name
   */
  resolve(userId: string, idOrName: string): string;
}

/** Records of other users are invisible: a name finds only those of the user who asks. */
export class NameIndex implements NamedRecords {
  readonly #plural: string;
  readonly #records = new Map<string, NamedRecord>();
  /** By user, then by name: IDs, the oldest entry first. */
  readonly #ids = new Map<string, Map<string, Set<string>>>();

  /** `plural`: of the kind, for messages: `endpoints`. */
  constructor(plural: string) {
    this.#plural = plural;
  }

  /** Adds the record, or follows a change of its name. */
  put(id: string, { name, userId }: NamedRecord): void {
    const known = this.#records.get(id);
    if (known?.name === name && known.userId === userId) return;
    this.remove(id);
    if (!isDnsLabel(name)) return;
    this.#records.set(id, { name, userId });
    const own = this.#ids.get(userId) ?? new Map<string, Set<string>>();
    this.#ids.set(userId, own.set(name, (own.get(name) ?? new Set()).add(id)));
  }

  remove(id: string): void {
    const known = this.#records.get(id);
    if (!known) return;
    this.#records.delete(id);
    const own = this.#ids.get(known.userId);
    const ids = own?.get(known.name);
    ids?.delete(id);
    if (ids?.size === 0) own?.delete(known.name);
    if (own?.size === 0) this.#ids.delete(known.userId);
  }

  clear(): void {
    this.#records.clear();
    this.#ids.clear();
  }

  /** IDs of the user's records with this name. */
  list(userId: string, name: string): string[] {
    return [...(this.#ids.get(userId)?.get(name) ?? [])];
  }

  resolve(userId: string, idOrName: string): string {
    return this.choose(idOrName, this.list(userId, idOrName));
  }

  /** The only one of `ids`, or `name` without any. @throws ProblemError `conflict` */
  choose(name: string, ids: readonly string[]): string {
    const [only = name, second] = ids;
    if (second === undefined) return only;
    const listed = ids.slice(0, MAX_LISTED).join(', ');
    const more = ids.length > MAX_LISTED ? ` and ${ids.length - MAX_LISTED} more` : '';
    throw new ProblemError(
      'conflict',
      `${ids.length} ${this.#plural} have the name ${name}; use the ID of one: ${listed}${more}`,
    );
  }
}
