// The conformance suite for every engine, with real containers or processes.
import { afterEach, beforeEach, describe } from 'vitest';
import { describeCuts, describeDisks } from './engine-disks.ts';
import { describeEnds, describeLives } from './engine-ends.ts';
import { describeSights } from './engine-sights.ts';
import { EngineStage, type EngineUnderTest } from './engine-stage.ts';

export function describeEngine(under: EngineUnderTest): void {
  describe(`the engine ${under.name}`, () => {
    const stage = new EngineStage(under);

    beforeEach(() => stage.set());
    afterEach(() => stage.clear());

    describeLives(stage);
    describeEnds(stage);
    describeDisks(stage);
    describeSights(stage);
    describeCuts(stage);
  });
}
