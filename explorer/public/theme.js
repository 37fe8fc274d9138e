// Applies the theme that the user chose, before the first paint. Without a choice the style sheet
// follows the system.
(function () {
  try {
    var theme = localStorage.getItem("ledgerd.theme");
    if (theme === "light" || theme === "dark") {
      document.documentElement.dataset.theme = theme;
    }
  } catch (error) {
    // The browser forbids storage, so the page follows the system.
  }
})();
