/** Returns the address of a page of the documentation. */
export const manual = (page: string): string =>
  `https://github.com/asyncflow/asyncflow/blob/main/docs/${page}`;
