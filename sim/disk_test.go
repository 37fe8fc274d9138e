package sim

import (
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// fillDisk returns a disk with a chain of two synced groups, of 2 and 3 blocks, and 2 unsynced
// blocks.
func fillDisk() (*disk, *chain) {
	all, genesis := make(blocks), newGenesis(3, 3)
	c := newChain(all, []*block{genesis})
	d := newDisk(newDiskID(stream(1, 0)), genesis)
	round := order.Round(0)
	grow := func(count int) {
		for range count {
			round++
			c.execute(0, round, []order.Message{say(0, string(rune('a'+round)))})
		}
		d.write(c.blocks)
	}
	grow(2)
	d.sync(c.blocks, 2, 1, false)
	grow(3)
	d.sync(c.blocks, 5, 4, false)
	grow(2)
	return d, c
}

func TestPowerTakesWhatIsNotSynced(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		d, _ := fillDisk()
		d.losePower(lossZeros, stream(seed, 0))
		if d.height() < 5 || d.perhaps || d.durable != 4 {
			t.Fatalf("%d blocks are left, perhaps %v, durable %d", d.height(), d.perhaps, d.durable)
		}
		d, _ = fillDisk()
		d.losePower(lossTorn, stream(seed, 0))
		if d.height() < 5 || d.height() > 6 || !d.perhaps {
			t.Fatalf("torn: %d blocks are left, perhaps %v", d.height(), d.perhaps)
		}
		d, _ = fillDisk()
		d.losePower(lossDamaged, stream(seed, 0))
		if d.height() != 2 || !d.perhaps || d.durable != 1 || d.synced != 2 {
			t.Fatalf("damaged: %d blocks are left, %d synced, perhaps %v, durable %d", d.height(),
				d.synced, d.perhaps, d.durable)
		}
		d, _ = fillDisk()
		d.crash(stream(seed, 0), true)
		if d.height() < 5 || d.height() > 7 {
			t.Fatalf("a crash leaves %d blocks", d.height())
		}
	}
}

func TestPerhapsLastsUntilItIsSettled(t *testing.T) {
	t.Parallel()
	d, c := fillDisk()
	d.losePower(lossDamaged, stream(1, 0))
	d.open()
	if !d.perhaps {
		t.Fatal("a start forgets that there may have been more")
	}
	d.sync(c.blocks[:4], 3, 1, false)
	if !d.perhaps {
		t.Fatal("a sync of one block forgets the others of the lost group")
	}
	d.settleDoubt()
	d.open()
	d.sync(c.blocks[:5], 4, 1, false)
	if !d.perhaps {
		t.Fatal("what was settled before a crash is settled on the disk without a sync")
	}
	d.settleDoubt()
	d.sync(c.blocks[:5], 4, 1, false)
	if d.perhaps {
		t.Fatal("what the member settled comes back")
	}
}

func TestLostHomesAreOthers(t *testing.T) {
	t.Parallel()
	d, c := fillDisk()
	id := d.id
	d.losePromises()
	d.renew(newDiskID(stream(2, 0)), "its promises are missing")
	if d.id == id || d.original || d.height() != 7 || !d.promises {
		t.Errorf("%+v", d)
	}
	copied := d.copy()
	d.loseData(c.blocks[0])
	if d.height() != 0 || copied.height() != 7 {
		t.Errorf("%d and %d blocks", d.height(), copied.height())
	}
}
