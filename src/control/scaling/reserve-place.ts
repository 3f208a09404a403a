// Keeps a place for the check worker of a new version: the scaler decides as if it were taken. Pure.
import type { ScalerInput } from '../../wire/resources/scaling.ts';

export function reservePlace(input: ScalerInput): ScalerInput {
  const { gpus, headroom, places } = input;
  const one = (count: number) => Math.max(0, count - 1);
  // The check worker gets the first type that has a free GPU.
  const first = gpus?.findIndex(({ free }) => free > 0);
  return {
    ...input,
    places: places === null ? null : one(places),
    ...(headroom && { headroom: { ...headroom, places: one(headroom.places) } }),
    ...(gpus && {
      gpus: gpus.map((gpu, index) => (index === first ? { ...gpu, free: gpu.free - 1 } : gpu)),
    }),
  };
}
