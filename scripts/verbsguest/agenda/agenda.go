// Package agenda is what the guest of scripts/verbs-test is told and what it answers: one JSON file
// in its root folder, and one JSON object a line on the way back.
package agenda

// Path is where the guest finds its Agenda.
const Path = "/agenda.json"

// Names of the guest's ports, by which it speaks to its host.
const (
	PortOutput  = "output"  // what the programs write
	PortReports = "reports" // a Report a line
)

// OutputMark begins the line on PortOutput that stands before what a program writes; the program's
// name follows.
const OutputMark = "\x1eprogram "

// Agenda is what the guest does, in this order: it loads the modules, sets up the devices, runs the
// programs, and switches itself off.
type Agenda struct {
	// Modules are the kernel modules' files, those first that others need.
	Modules []string `json:"modules"`
	// Device is the name of the Soft-RoCE device, on a network interface of its own that has the
	// Address (an IPv4 prefix).
	Device  string `json:"device"`
	Address string `json:"address"`
	// Environment is that of all programs.
	Environment []string  `json:"environment"`
	Programs    []Program `json:"programs"`
}

// Program is one program that runs in the guest.
type Program struct {
	Name      string   `json:"name"`
	Path      string   `json:"path"`
	Arguments []string `json:"arguments"`
	// Folder is where it runs.
	Folder string `json:"folder"`
	// Seconds bound its time; then it is killed.
	Seconds int `json:"seconds"`
}

// Event says what a Report is about.
type Event string

// The events of a guest's life.
const (
	EventReady  Event = "ready"  // the devices are there
	EventBegun  Event = "begun"  // a program
	EventEnded  Event = "ended"  // a program
	EventFailed Event = "failed" // the guest itself
	EventDone   Event = "done"   // all programs have ended
)

// StatusKilled is the exit status of a program that a signal ended, or that did not start.
const StatusKilled = 125

// Report is one thing that happened in the guest.
type Report struct {
	Event   Event  `json:"event"`
	Program string `json:"program,omitempty"`
	// Status is a program's exit status, StatusKilled for one without.
	Status int `json:"status,omitempty"`
	// Seconds are those of the program that ended, by the guest's clock.
	Seconds float64 `json:"seconds,omitempty"`
	Reason  string  `json:"reason,omitempty"`
}
