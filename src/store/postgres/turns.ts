// Lets reads and commits take turns: reads run together, a commit runs alone. Each one waits only for those that
// came before it, so neither kind starves.

interface Waiting {
  isAlone: boolean;
  go: () => void;
}

export class Turns {
  #reads = 0;
  #isAlone = false;
  readonly #waiting: Waiting[] = [];

  /** Runs it together with other reads. */
  async together<T>(act: () => Promise<T>): Promise<T> {
    await this.#enter(false);
    try {
      return await act();
    } finally {
      this.#reads--;
      this.#admit();
    }
  }

  /** Runs it while nothing else runs. */
  async alone<T>(act: () => Promise<T>): Promise<T> {
    await this.#enter(true);
    try {
      return await act();
    } finally {
      this.#isAlone = false;
      this.#admit();
    }
  }

  #enter(isAlone: boolean): Promise<void> {
    return new Promise((go) => {
      this.#waiting.push({ isAlone, go });
      this.#admit();
    });
  }

  #admit(): void {
    for (let next = this.#waiting[0]; next; next = this.#waiting[0]) {
      if (this.#isAlone || (next.isAlone && this.#reads > 0)) return;
      this.#waiting.shift();
      if (next.isAlone) this.#isAlone = true;
      else this.#reads++;
      next.go();
    }
  }
}
