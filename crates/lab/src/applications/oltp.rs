//! A database under the TPC-C benchmark (standard specification, revision 5.11): the pages its transactions read and
//! change.
//!
//! Rows, their sizes and how they are drawn are the standard's; pages of 8 KiB are filled with them in the order of
//! their keys. What is small or always in use is taken to be in the database's memory: warehouses, districts, items,
//! indices, and the ends of the tables that grow. So is half of what a stock level reads, the rows of the last orders:
//! with that the disk reads 1.9 pages per page written, as measured by Chen and others ("TPC-E vs. TPC-C", SIGMOD
//! Record 2010).
//!
//! A transaction that changes anything is flushed to the log before its pages are written home. Transactions run one
//! after the other, so no two share a flush.

use super::steps::NextRequests;
use crate::rng::Rng;
use crate::trace::Op;

const PAGE_BYTES: u64 = 8192;
const PAGE_BLOCKS: u64 = 2;

/// Rows of a warehouse, and how many fit in a page (clauses 1.2, 1.3 and 4.2.2).
const STOCK: u64 = 100_000;
const STOCK_A_PAGE: u64 = PAGE_BYTES / 306;
const CUSTOMERS: u64 = 3000;
const DISTRICTS: u64 = 10;
const CUSTOMERS_A_PAGE: u64 = PAGE_BYTES / 655;
const ORDER_BYTES: u64 = 24 + 8;
const LINE_BYTES: u64 = 54;
const HISTORY_BYTES: u64 = 46;

/// Pages of a warehouse: its stock, its customers, then orders, their lines and payments, which grow in a circle.
pub const STOCK_PAGES: u64 = STOCK.div_ceil(STOCK_A_PAGE);
pub const CUSTOMER_PAGES: u64 = (CUSTOMERS * DISTRICTS).div_ceil(CUSTOMERS_A_PAGE);
const ORDER_PAGES: u64 = 18_372_000 / PAGE_BYTES;
pub const WAREHOUSE_PAGES: u64 = STOCK_PAGES + CUSTOMER_PAGES + ORDER_PAGES;

/// Names of customers: a district has three customers of each name (clause 4.3.2.3).
const NAMES: u64 = 1000;
/// Rows of stock that a stock level reads for 20 orders and that are not in memory.
const STOCK_LEVEL_READS: u64 = 20 * 10 / 2;

/// A transaction (clause 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transaction {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Transaction {
    /// Draws a transaction, with the standard's minimum for each type but the first (clause 5.2.3).
    pub fn drawn(rng: &mut Rng) -> Self {
        match rng.below(100) {
            0..45 => Self::NewOrder,
            45..88 => Self::Payment,
            88..92 => Self::OrderStatus,
            92..96 => Self::Delivery,
            _ => Self::StockLevel,
        }
    }
}

/// The standard's non-uniform numbers (clause 2.1.6), from 0 to below `n`, with a constant of 0.
pub fn non_uniform(rng: &mut Rng, a: u64, n: u64) -> u64 {
    (rng.below(a + 1) | (1 + rng.below(n))) % n
}

/// A database, and where its log is.
pub struct Oltp {
    blocks: u64,
    /// Blocks of the log, at the volume's start, and its current position.
    log: u64,
    log_at: u64,
    pages: u64,
    /// All bytes added to each warehouse.
    grown: Vec<u64>,
    changed: Vec<u64>,
}

impl Oltp {
    pub fn new(blocks: u64) -> Self {
        let log = (blocks / 64).max(1);
        let pages = (blocks.saturating_sub(log) / PAGE_BLOCKS).max(1);
        let warehouses = (pages / WAREHOUSE_PAGES).max(1);
        Self {
            blocks,
            log,
            log_at: 0,
            pages,
            grown: vec![0; warehouses as usize],
            changed: Vec::new(),
        }
    }

    pub fn transaction(&mut self, rng: &mut Rng, steps: &mut NextRequests) {
        let home = self.warehouse(rng);
        match Transaction::drawn(rng) {
            Transaction::NewOrder => self.new_order(rng, home, steps),
            Transaction::Payment => self.payment(rng, home, steps),
            Transaction::OrderStatus => {
                self.customer(rng, home, steps);
                let order = rng.below(ORDER_PAGES);
                self.read(home, STOCK_PAGES + CUSTOMER_PAGES + order, steps);
            }
            Transaction::Delivery => self.delivery(rng, home, steps),
            Transaction::StockLevel => (0..STOCK_LEVEL_READS).for_each(|_| {
                let page = stock(rng);
                self.read(home, page, steps);
            }),
        }
        if self.changed.is_empty() {
            return;
        }
        steps.write(self.log_at, 1);
        self.log_at = (self.log_at + 1) % self.log;
        steps.flush();
        for lba in std::mem::take(&mut self.changed) {
            steps.write(lba, self.page_blocks());
        }
    }

    fn new_order(&mut self, rng: &mut Rng, home: u64, steps: &mut NextRequests) {
        let district = rng.below(DISTRICTS);
        let page = customers(district, non_uniform(rng, 1023, CUSTOMERS));
        self.read(home, page, steps);
        let lines = 5 + rng.below(11);
        for _ in 0..lines {
            // One item in a hundred is supplied by another warehouse (clause 2.4.1.5).
            let from = match rng.below(100) {
                0 => self.warehouse(rng),
                _ => home,
            };
            let page = stock(rng);
            self.change(from, page, steps);
        }
        self.grow(home, ORDER_BYTES + lines * LINE_BYTES);
    }

    fn payment(&mut self, rng: &mut Rng, home: u64, steps: &mut NextRequests) {
        // For a customer of another warehouse in 15 of a hundred cases (clause 2.5.1.2).
        let whose = match rng.below(100) {
            0..15 => self.warehouse(rng),
            _ => home,
        };
        let page = self.customer(rng, whose, steps);
        self.changed.push(self.lba(whose, page));
        self.grow(home, HISTORY_BYTES);
    }

    /// Delivers the oldest order of each district; these were added at about the same time (clause 2.7.4).
    fn delivery(&mut self, rng: &mut Rng, home: u64, steps: &mut NextRequests) {
        let newest = self.grown[home as usize] / PAGE_BYTES;
        let page = (newest + ORDER_PAGES / 2) % ORDER_PAGES;
        self.change(home, STOCK_PAGES + CUSTOMER_PAGES + page, steps);
        for district in 0..DISTRICTS {
            let page = customers(district, rng.below(CUSTOMERS));
            self.change(home, page, steps);
        }
    }

    /// Reads a customer's row and returns its page. 60 times in a hundred it is found by name, which three customers
    /// have (clause 2.5.1.2).
    fn customer(&mut self, rng: &mut Rng, warehouse: u64, steps: &mut NextRequests) -> u64 {
        let district = rng.below(DISTRICTS);
        if rng.below(100) >= 60 {
            let page = customers(district, non_uniform(rng, 1023, CUSTOMERS));
            self.read(warehouse, page, steps);
            return page;
        }
        let name = non_uniform(rng, 255, NAMES);
        let named = |nth: u64| customers(district, name + nth * NAMES);
        (0..3).for_each(|nth| self.read(warehouse, named(nth), steps));
        named(1)
    }

    fn warehouse(&self, rng: &mut Rng) -> u64 {
        rng.below(self.grown.len() as u64)
    }

    fn page_blocks(&self) -> u64 {
        self.blocks.saturating_sub(self.log).clamp(1, PAGE_BLOCKS)
    }

    fn lba(&self, warehouse: u64, page: u64) -> u64 {
        // A volume smaller than one warehouse has only some of its pages.
        let page = (warehouse * WAREHOUSE_PAGES + page) % self.pages;
        (self.log + PAGE_BLOCKS * page).min(self.blocks - self.page_blocks())
    }

    fn read(&self, warehouse: u64, page: u64, steps: &mut NextRequests) {
        steps.pieces(Op::Read, self.lba(warehouse, page), self.page_blocks());
    }

    fn change(&mut self, warehouse: u64, page: u64, steps: &mut NextRequests) {
        self.read(warehouse, page, steps);
        self.changed.push(self.lba(warehouse, page));
    }

    /// Adds bytes to a growing table. The page at its end is written when it is full.
    fn grow(&mut self, warehouse: u64, bytes: u64) {
        let grown = &mut self.grown[warehouse as usize];
        let page = *grown / PAGE_BYTES;
        *grown += bytes;
        if *grown / PAGE_BYTES > page {
            let page = STOCK_PAGES + CUSTOMER_PAGES + page % ORDER_PAGES;
            self.changed.push(self.lba(warehouse, page));
        }
    }
}

/// The page of an item's stock (clause 2.4.1.5).
fn stock(rng: &mut Rng) -> u64 {
    non_uniform(rng, 8191, STOCK) / STOCK_A_PAGE
}

fn customers(district: u64, customer: u64) -> u64 {
    STOCK_PAGES + (district * CUSTOMERS + customer) / CUSTOMERS_A_PAGE
}
