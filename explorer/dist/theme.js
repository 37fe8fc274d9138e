// Sets the chosen theme before the first paint; without a choice the style sheet follows the system.
(function () {
  try {
    var theme = localStorage.getItem("ledgerd.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch (error) {
    // Storage is forbidden here: the system's theme it is.
  }
})();
