// Compares many properties with their earlier values. Because it runs after every job, it is
// compiled: one function per object, with the keys in its source, is several times as fast as a
// loop over keys.
import { compileFunction } from 'node:vm';

export interface KnownValue {
  readonly holder: object;
  readonly key: PropertyKey;
  readonly value: unknown;
}

/** Compiling takes about 10 ms, which a thread with few jobs does not recover. */
const COMPILE_AFTER = 200;

const { get: readProperty } = Reflect;

type IsSame = () => boolean;

export class ValueComparison {
  readonly #known: KnownValue[];
  #compiled: IsSame[] | undefined;
  #runs = 0;

  constructor(known: readonly KnownValue[]) {
    this.#known = [...known];
  }

  /** Watches one more property, which must have this value now. */
  add(known: KnownValue): void {
    this.#known[this.#known.length] = known;
    this.#compiled = undefined;
    this.#runs = 0;
  }

  /**
   * Returns the first property with another value. Rethrows the error of a getter that has replaced
   * a value.
   */
  findDifference(): KnownValue | undefined {
    const compiled = this.#compiled;
    if (!compiled) return this.#search();
    for (let index = 0; index < compiled.length; index += 1) {
      if (compiled[index]?.() === false) return this.#search();
    }
    return undefined;
  }

  #search(): KnownValue | undefined {
    const known = this.#known;
    for (let index = 0; index < known.length; index += 1) {
      const each = known[index];
      if (each !== undefined && readProperty(each.holder, each.key) !== each.value) return each;
    }
    this.#runs += 1;
    // Compiles now, because compiling uses built-ins, and these are known to be unchanged.
    if (this.#runs >= COMPILE_AFTER) this.#compiled = compile(known);
    return undefined;
  }
}

function compile(known: readonly KnownValue[]): IsSame[] {
  const groups = Map.groupBy(known, ({ holder }) => holder);
  return [...groups.values()].map(compileGroup);
}

/** Compiles the comparison of one object's properties. */
function compileGroup(group: readonly KnownValue[]): IsSame {
  const tests = group.map(({ key }, index) => {
    const place = typeof key === 'symbol' ? `key${index}` : JSON.stringify(key);
    return `holder[${place}] === value${index}`;
  });
  const parameters = group.flatMap((_, index) => [`key${index}`, `value${index}`]);
  const makeTest = compileFunction(`return () => ${tests.join(' && ')}`, ['holder', ...parameters]);
  return makeTest(group[0]?.holder, ...group.flatMap(({ key, value }) => [key, value]));
}
