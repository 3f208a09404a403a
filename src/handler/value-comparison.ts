// Compares many properties with the values they had. It runs after every job, so it is compiled: one
// function for each object, with the keys in its source, is several times as fast as a loop over keys.
import { compileFunction } from 'node:vm';

export interface KnownValue {
  readonly holder: object;
  readonly key: PropertyKey;
  readonly value: unknown;
}

/** Compiling takes some 10 ms, which a thread with few jobs does not earn back. */
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

  /** Watches one more property, which must have that value now. */
  add(known: KnownValue): void {
    this.#known[this.#known.length] = known;
    this.#compiled = undefined;
    this.#runs = 0;
  }

  /** The first property with another value. Throws what a getter in the place of a value throws. */
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
    // Now, because compiling uses built-ins, and these are known to be the same.
    if (this.#runs >= COMPILE_AFTER) this.#compiled = compile(known);
    return undefined;
  }
}

function compile(known: readonly KnownValue[]): IsSame[] {
  const groups = Map.groupBy(known, ({ holder }) => holder);
  return [...groups.values()].map(compileGroup);
}

/** For the properties of one object. */
function compileGroup(group: readonly KnownValue[]): IsSame {
  const tests = group.map(({ key }, index) => {
    const place = typeof key === 'symbol' ? `key${index}` : JSON.stringify(key);
    return `holder[${place}] === value${index}`;
  });
  const parameters = group.flatMap((_, index) => [`key${index}`, `value${index}`]);
  const makeTest = compileFunction(`return () => ${tests.join(' && ')}`, ['holder', ...parameters]);
  return makeTest(group[0]?.holder, ...group.flatMap(({ key, value }) => [key, value]));
}
