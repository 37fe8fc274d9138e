package main

import (
	"fmt"
	"io"
	"time"

	"codeberg.org/go-pdf/fpdf"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
)

// The page of a PDF, in mm, and its columns.
const (
	pageMargin = 15.0
	lineHeight = 5.0
	fontSize   = 8.0 // of the lines
)

// maxPDFLines bounds a PDF, which is in memory as a whole.
const maxPDFLines = 100_000

var pdfColumns = []struct {
	title string
	width float64
	align string
}{
	{"Time", 36, "L"}, {"Block", 20, "R"}, {"In", 36, "R"}, {"Out", 36, "R"}, {"Balance", 40, "R"},
	{"Asset", 22, "L"}, {"Transaction", 24, "L"}, {"Effective", 20, "L"}, {"Note", 33, "L"},
}

// writePDF writes the statement as a PDF. The same statement gives the same bytes.
func (r *statementReport) writePDF(out io.Writer, period *periodFlags) error {
	lines := r.lines()
	if len(lines) > maxPDFLines {
		return fmt.Errorf("the statement has %d lines, and a PDF at most %d: take a shorter "+
			"period, or another format", len(lines), maxPDFLines)
	}
	pdf := fpdf.New("L", "mm", "A4", "")
	pdf.SetCatalogSort(true)
	asOf := time.UnixMilli(int64(r.TimeMS)).UTC()
	pdf.SetCreationDate(asOf)
	pdf.SetModificationDate(asOf)
	pdf.SetTitle("Statement of "+r.Account, true)
	pdf.SetCreator("ledgerd", true)
	pdf.AddUTF8FontFromBytes("go", "", goregular.TTF)
	pdf.AddUTF8FontFromBytes("go", "B", gobold.TTF)
	pdf.SetMargins(pageMargin, pageMargin, pageMargin)
	pdf.SetAutoPageBreak(true, pageMargin+lineHeight)
	pdf.AliasNbPages("")
	pdf.SetFooterFunc(func() {
		pdf.SetY(-pageMargin)
		pdf.SetFont("go", "", fontSize)
		pdf.CellFormat(0, lineHeight, fmt.Sprintf("%s, %s. As of %s. Page %d of {nb}", r.Account,
			r.periodText(period), r.asOf(period), pdf.PageNo()), "", 0, "C", false, 0, "")
	})
	pdf.SetHeaderFunc(func() {
		if pdf.PageNo() > 1 {
			pdfHeader(pdf)
		}
	})
	pdf.AddPage()
	pdf.SetFont("go", "B", 16)
	pdf.CellFormat(0, 9, "Statement of "+r.Account, "", 1, "L", false, 0, "")
	pdf.SetFont("go", "", 10)
	pdf.CellFormat(0, lineHeight, "Period: "+r.periodText(period), "", 1, "L", false, 0, "")
	pdf.CellFormat(0, lineHeight, "As of: "+r.asOf(period), "", 1, "L", false, 0, "")
	pdf.Ln(lineHeight)
	pdfHeader(pdf)
	for _, line := range lines {
		pdfLine(pdf, &line, period)
	}
	return pdf.Output(out)
}

func pdfHeader(pdf *fpdf.Fpdf) {
	pdf.SetFont("go", "B", fontSize)
	for _, column := range pdfColumns {
		pdf.CellFormat(column.width, lineHeight, column.title, "B", 0, column.align, false, 0, "")
	}
	pdf.Ln(lineHeight)
	pdf.SetFont("go", "", fontSize)
}

func pdfLine(pdf *fpdf.Fpdf, line *statementLine, period *periodFlags) {
	cells := []string{"", "", grouped(line.in), grouped(line.out), grouped(line.balance),
		line.asset, "", "", ""}
	style := "B"
	if entry := line.entry; entry == nil {
		cells[0] = map[string]string{"opening": "Opening balance", "total": "Total",
			"closing": "Closing balance"}[line.kind]
	} else if style = ""; line.first {
		cells[0], cells[1] = period.moment(entry.TimeMS), fmt.Sprint(entry.Height)
		cells[6] = entry.TransactionID[:min(12, len(entry.TransactionID))] + "…"
		cells[7], cells[8] = entry.effective(period), sanitize(entry.note, 200)
	}
	pdf.SetFont("go", style, fontSize)
	for i, column := range pdfColumns {
		text := fitting(pdf, cells[i], column.width-2*pdf.GetCellMargin(), column.align == "R")
		pdf.CellFormat(column.width, lineHeight, text, "", 0, column.align, false, 0, "")
	}
	pdf.Ln(lineHeight)
}

// fitting shortens text to a width. A number is not shortened: it gets a smaller font.
func fitting(pdf *fpdf.Fpdf, text string, width float64, number bool) string {
	pdf.SetFontSize(fontSize)
	if !number {
		for letters := []rune(text); pdf.GetStringWidth(text) > width && len(letters) > 1; {
			letters = letters[:len(letters)-1]
			text = string(letters) + "…"
		}
		return text
	}
	for size := fontSize; size > 3 && pdf.GetStringWidth(text) > width; size -= 0.5 {
		pdf.SetFontSize(size)
	}
	return text
}
