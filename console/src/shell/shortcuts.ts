// Keys that work on every page: `/` moves the focus to the search field.

export function listenForKeys(): void {
  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target instanceof Element && event.target.closest('input, textarea, select')) return;
    const search = document.querySelector<HTMLInputElement>('input[type=search]');
    if (!search) return;
    event.preventDefault();
    search.focus();
    search.select();
  });
}
