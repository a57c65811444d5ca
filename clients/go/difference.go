package vellumtest

import "strings"

const (
	contextLines = 3
	// For more line pairs, the difference has all lines of one text, then all lines of the second.
	pairsMax = 4_000_000
)

// lineDifference returns lines of only the first text with a minus, of only the second with a plus, and their
// context.
func lineDifference(before, after string) string {
	end := func(r rune) bool { return r == '\n' }
	old, now := strings.FieldsFunc(before, end), strings.FieldsFunc(after, end)
	common := commonLines(old, now)
	var shown []string
	for i, j := 0, 0; i < len(old) || j < len(now); {
		switch {
		case i < len(old) && j < len(now) && old[i] == now[j]:
			shown = append(shown, "  "+old[i])
			i++
			j++
		case j == len(now) || i < len(old) && common[i+1][j] >= common[i][j+1]:
			shown = append(shown, "- "+old[i])
			i++
		default:
			shown = append(shown, "+ "+now[j])
			j++
		}
	}
	return strings.Join(near(shown), "\n")
}

// commonLines returns, for each pair of lines, the number of common lines from there on.
func commonLines(old, now []string) [][]int {
	common := make([][]int, len(old)+1)
	tooMany := len(old)*len(now) > pairsMax
	none := make([]int, len(now)+1)
	for i := len(old); i >= 0; i-- {
		common[i] = none
		if tooMany || i == len(old) {
			continue
		}
		common[i] = make([]int, len(now)+1)
		for j := len(now) - 1; j >= 0; j-- {
			if old[i] == now[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	return common
}

func near(lines []string) []string {
	var near []string
	last := -1
	for at, line := range lines {
		for _, around := range lines[max(0, at-contextLines):min(len(lines), at+contextLines+1)] {
			if around[0] == ' ' {
				continue
			}
			if at != last+1 {
				near = append(near, "  …")
			}
			near = append(near, line)
			last = at
			break
		}
	}
	return near
}
