// Package agenda defines the guest's instructions and answers in scripts/verbs-test: one JSON file
// in the guest's root folder, and one JSON object on each line of the way back.
package agenda

// Path is the file that contains the guest's Agenda.
const Path = "/agenda.json"

// Names of the guest's ports to its host.
const (
	PortOutput  = "output"  // the programs' output
	PortReports = "reports" // one Report on each line
)

// OutputMark begins the line on PortOutput before a program's output. The program's name follows.
const OutputMark = "\x1eprogram "

// Agenda describes the guest's work, in this order: it loads the modules, sets up the devices, runs
// the programs, and switches itself off.
type Agenda struct {
	// Modules are the files of the kernel modules, in an order in which each comes after those it
	// needs.
	Modules []string `json:"modules"`
	// Device is the name of the Soft-RoCE device. It has a network interface of its own with the
	// Address (an IPv4 prefix).
	Device  string `json:"device"`
	Address string `json:"address"`
	// Environment is the environment of all programs.
	Environment []string  `json:"environment"`
	Programs    []Program `json:"programs"`
}

// Program is one program that runs in the guest.
type Program struct {
	Name      string   `json:"name"`
	Path      string   `json:"path"`
	Arguments []string `json:"arguments"`
	// Folder is the working directory.
	Folder string `json:"folder"`
	// Seconds limits the program's time. Then it is killed.
	Seconds int `json:"seconds"`
}

// Event is the kind of a Report.
type Event string

// The events of a guest.
const (
	EventReady  Event = "ready"  // the devices are up
	EventBegun  Event = "begun"  // a program began
	EventEnded  Event = "ended"  // a program ended
	EventFailed Event = "failed" // the guest itself failed
	EventDone   Event = "done"   // all programs have ended
)

// StatusKilled is the exit status of a program that a signal ended, or that did not start.
const StatusKilled = 125

// Report is one event in the guest.
type Report struct {
	Event   Event  `json:"event"`
	Program string `json:"program,omitempty"`
	// Status is a program's exit status, or StatusKilled.
	Status int `json:"status,omitempty"`
	// Seconds is the running time of a program that ended, by the guest's clock.
	Seconds float64 `json:"seconds,omitempty"`
	Reason  string  `json:"reason,omitempty"`
}
