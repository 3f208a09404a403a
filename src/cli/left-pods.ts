// Says how many pods keep running when a platform ends, which surprises those who stop it with Ctrl-C.
import { countLeftPods, type LeftPods } from '../platform/compute/left-pods.ts';

export async function tellLeftPods(place: LeftPods): Promise<void> {
  const pods = await countLeftPods(place);
  if (pods === 0) return;
  place.log.info(
    { pods },
    'pods keep running without the platform; stop them with `millrace down`, or start the platform again',
  );
}
